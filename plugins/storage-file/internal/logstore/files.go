package logstore

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/sealed"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// The names in a store's directory and in a log's. docs/storage-file-format.md
// draws them.
const (
	identityName   = "identity"
	lockName       = "lock"
	reserveName    = "reserve"
	metaName       = "meta"
	checkpointName = "checkpoint"
	hintName       = "hint"
	swapName       = "swap"
	suspectName    = "suspect"
	blobsName      = "blobs"
	blobSuffix     = ".blob"
	deletedSuffix  = ".deleted"
)

// The kinds of file, and the version of each that we write and read.
var (
	identityKind   = sealed.Kind{Magic: "BSID", Version: 1}
	metaKind       = sealed.Kind{Magic: "BLMT", Version: 1}
	checkpointKind = sealed.Kind{Magic: "BCKP", Version: 1}
	hintKind       = sealed.Kind{Magic: "BHNT", Version: 1}
	swapKind       = sealed.Kind{Magic: "BSWP", Version: 1}
	blobKind       = sealed.Kind{Magic: "BBLB", Version: 1}
	suspectKind    = sealed.Kind{Magic: "BSUS", Version: 1}
)

const (
	smallFileMax = 64 << 10
	// checkpointMax bounds a checkpoint; an epoch takes some 30 bytes in it.
	checkpointMax = 64 << 20
)

// identity says whose store a directory is.
type identity struct {
	FormatVersion int    `json:"format_version"`
	ClusterID     string `json:"cluster_id"`
	NodeID        int32  `json:"node_id"`
	DirectoryID   string `json:"directory_id"`
}

// meta names a log. It can be made again from the directory's name.
type meta struct {
	Topic     string `json:"topic_id"`
	Partition int32  `json:"partition"`
	Label     string `json:"label"`
}

// state of a log, as its checkpoint tells the next opening.
type state string

const (
	// stateClean: nothing was appended since the checkpoint was written.
	stateClean state = "clean"
	// stateSynced: every append acknowledged since was synced before.
	stateSynced state = "synced"
	// stateLoose: appends were acknowledged that no sync had covered.
	stateLoose state = "loose"
)

// span is a range of offsets, the end exclusive.
type span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

type epochStart struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

// checkpoint is what a log must remember durably beside its segments.
type checkpoint struct {
	LogStart      int64        `json:"log_start"`
	RecoveryPoint int64        `json:"recovery_point"`
	State         state        `json:"state"`
	BootID        string       `json:"boot_id"`
	Lost          bool         `json:"lost"` // the verdict that nobody acted on yet
	Gaps          bool         `json:"gaps"` // offsets may be missing past the recovery point
	Epochs        []epochStart `json:"epochs"`
	Holes         []span       `json:"holes,omitempty"`
	Segments      int          `json:"segments"`
	ActiveBase    int64        `json:"active_base"`
	ActiveBytes   int64        `json:"active_bytes"`
	// Ahead is the base offset of a segment whose file may go on behind the log,
	// with zeros.
	Ahead *int64 `json:"ahead,omitempty"`
}

// swap is the journal of a replacement: once it is there, the segments in New
// take the places of those in Old.
type swap struct {
	Old []int64 `json:"old"`
	New []int64 `json:"new"`
}

// hint is rewritten in place, and synced only before an append under a new
// leader epoch is called durable. A damaged one is ignored.
type hint struct {
	// Recovery may run ahead of the checkpoint's recovery point.
	Recovery int64
	// Epochs are the newest of the log's, noted before the first batch of each
	// is written.
	Epochs []epochStart
}

const (
	hintEpochsMax  = 32
	hintEpochBytes = 12
	hintPayload    = 12 + hintEpochsMax*hintEpochBytes // within one sector
)

func (h hint) encode() []byte {
	epochs := h.Epochs[max(0, len(h.Epochs)-hintEpochsMax):]
	b := make([]byte, 0, hintPayload)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Recovery))
	b = binary.BigEndian.AppendUint32(b, uint32(len(epochs)))
	for _, e := range epochs {
		b = binary.BigEndian.AppendUint32(b, uint32(e.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.Start))
	}
	return sealed.Encode(hintKind, b[:hintPayload])
}

func decodeHint(b []byte) (hint, error) {
	p, err := sealed.Decode(hintKind, b)
	if err != nil {
		return hint{}, err
	}
	if len(p) != hintPayload || binary.BigEndian.Uint32(p[8:]) > hintEpochsMax {
		return hint{}, fmt.Errorf("%w: hint of %d bytes", sealed.ErrDamaged, len(p))
	}
	h := hint{Recovery: int64(binary.BigEndian.Uint64(p))}
	p, n := p[12:], int(binary.BigEndian.Uint32(p[8:]))
	for e := range slices.Chunk(p[:n*hintEpochBytes], hintEpochBytes) {
		h.Epochs = append(h.Epochs, epochStart{
			Epoch: int32(binary.BigEndian.Uint32(e)), Start: int64(binary.BigEndian.Uint64(e[4:])),
		})
	}
	return h, nil
}

// readValue reads a sealed file that holds JSON.
func readValue[T any](fs vfs.FS, name string, k sealed.Kind, limit int64) (T, error) {
	var v T
	b, err := sealed.Read(fs, name, k, limit)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("read %s: %w: %w", name, sealed.ErrDamaged, err)
	}
	return v, nil
}

// writeValue replaces a sealed file that holds JSON.
func writeValue[T any](fs vfs.FS, name string, k sealed.Kind, v T) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return sealed.Replace(fs, name, k, b)
}

// labelMax bounds the part of a directory's name that is for people: names
// have 255 bytes on common file systems.
const labelMax = 120

// cleanLabel keeps what every file system takes in a name.
func cleanLabel(label string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		}
		return '_'
	}, label)
	clean = strings.TrimLeft(clean, ".")
	if clean == "" {
		return "log"
	}
	return clean[:min(len(clean), labelMax)]
}

// dirName is the name of a log's directory: label, partition, topic ID.
func dirName(id storage.LogID, label string) string {
	return fmt.Sprintf("%s-%d.%s", cleanLabel(label), id.Partition, hex.EncodeToString(id.Topic[:]))
}

// parseDirName reads a log's ID and label from the name of its directory.
func parseDirName(name string) (id storage.LogID, label string, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return id, "", false
	}
	topic, err := hex.DecodeString(name[dot+1:])
	if err != nil || len(topic) != len(id.Topic) {
		return id, "", false
	}
	// A negative partition has a dash of its own before its number.
	head := name[:dot]
	dash := strings.LastIndexByte(head, '-')
	if dash <= 0 {
		return id, "", false
	}
	if head[dash-1] == '-' && dash > 1 {
		dash--
	}
	partition, err := strconv.ParseInt(head[dash+1:], 10, 32)
	if err != nil {
		return id, "", false
	}
	copy(id.Topic[:], topic)
	id.Partition = int32(partition)
	return id, head[:dash], true
}
