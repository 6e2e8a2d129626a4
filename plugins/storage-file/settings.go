package storagefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

// settings is the plugin's section of the configuration.
type settings struct {
	Path          string   `json:"path"`
	Reserve       byteSize `json:"reserve"`
	BootID        string   `json:"boot_id"`
	SegmentBytes  byteSize `json:"segment_bytes"`
	SegmentAge    duration `json:"segment_age"`
	IndexInterval byteSize `json:"index_interval"`
	Runners       int      `json:"runners"`
	Syncers       int      `json:"syncers"`
}

const (
	segmentBytesLeast = 1 << 10
	segmentBytesMost  = 1<<31 - 1
	workersMost       = 1024
)

func defaultSettings() settings {
	return settings{
		Reserve:       16 << 20,
		SegmentBytes:  1 << 30,
		SegmentAge:    duration(7 * 24 * time.Hour),
		IndexInterval: 4 << 10,
		Runners:       16,
		Syncers:       16,
	}
}

// describe is what the plugin says of its settings.
func describe() []storage.Setting {
	return []storage.Setting{
		{Name: "path", About: "the directory of the store; its parent must be there. Required"},
		{Name: "reserve", About: "room kept so that topics can be deleted on a full disk; at most a 64th of the disk", Default: "16MiB"},
		{Name: "segment_bytes", About: "size of a segment, for logs that do not say", Default: "1GiB"},
		{Name: "segment_age", About: "age at which a segment ends, for logs that do not say", Default: "168h"},
		{Name: "index_interval", About: "bytes of a log between entries of its index, for logs that do not say", Default: "4KiB"},
		{Name: "runners", About: "how many logs are written or recovered at once", Default: "16"},
		{Name: "syncers", About: "how many logs are synced at once", Default: "16"},
		{Name: "boot_id", About: "names this start of the machine, where the system cannot", Default: "the system's"},
	}
}

// parseSettings reads the section strictly.
func parseSettings(data []byte) (settings, error) {
	s := defaultSettings()
	if len(data) > 0 {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return s, storage.Errorf(storage.ErrInvalid, "settings of storage-file: %v", err)
		}
	}
	switch {
	case s.Path == "":
		return s, storage.Errorf(storage.ErrInvalid, "settings of storage-file: path is missing; name the directory of the store")
	case s.Reserve < 0:
		return s, storage.Errorf(storage.ErrInvalid, "settings of storage-file: reserve is negative")
	case s.SegmentBytes < segmentBytesLeast || s.SegmentBytes > segmentBytesMost:
		return s, storage.Errorf(storage.ErrInvalid, "settings of storage-file: segment_bytes is not between 1KiB and 2GiB - 1")
	case s.SegmentAge <= 0:
		return s, storage.Errorf(storage.ErrInvalid, "settings of storage-file: segment_age is not positive")
	case s.IndexInterval <= 0:
		return s, storage.Errorf(storage.ErrInvalid, "settings of storage-file: index_interval is not positive")
	case s.Runners < 1 || s.Runners > workersMost, s.Syncers < 1 || s.Syncers > workersMost:
		return s, storage.Errorf(storage.ErrInvalid, "settings of storage-file: runners and syncers are between 1 and %d", workersMost)
	}
	return s, nil
}

// byteSize is a number of bytes, written as one or with a unit: 16MiB.
type byteSize int64

// UnmarshalJSON implements json.Unmarshaler.
func (s *byteSize) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	number, scale := text, int64(1)
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, scale = strings.TrimSpace(n), int64(1)<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > (1<<63-1)/scale || n < -(1<<62)/scale {
		return fmt.Errorf("%q is not a size; write 16MiB or a number of bytes", text)
	}
	*s = byteSize(n * scale)
	return nil
}

// duration is a time span, written with its unit: 30s.
type duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a time span; write 30s or 168h", text)
	}
	*d = duration(v)
	return nil
}
