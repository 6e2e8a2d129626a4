package storagefile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/logstore"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// spareBytes is how much of a disk dropped segments may occupy that are used again.
const spareBytes = 4 << 30

// bootIDFile holds an id that is new at each start of the machine.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Provider makes stores on local files. It may be used from many goroutines.
func Provider() storage.Provider { return ProviderAt(time.Now) }

// ProviderAt makes stores that tell the time by now, which may be called concurrently. Its
// times are to carry a monotonic reading.
func ProviderAt(now func() time.Time) storage.Provider {
	return &provider{fs: vfs.OS{}, now: now}
}

type provider struct {
	fs  vfs.FS
	now func() time.Time
}

// Info implements storage.Provider.
func (p *provider) Info() storage.Info {
	return storage.Info{
		Name:     "storage-file",
		Version:  "1.0.0",
		About:    "Keeps logs as segments of record batches in files of a local directory.",
		Settings: describe(),
	}
}

// Open implements storage.Provider. The store's own goroutines start here and
// end with its Shutdown, which waits for them.
func (p *provider) Open(_ context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	store, id, err := p.open(cfg)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	// The contract gives a store no Run of its own.
	go func() {
		if err := store.Run(context.Background()); err != nil {
			cfg.Logger.Error("store ended", "err", err)
		}
	}()
	return store, id, nil
}

func (p *provider) open(cfg storage.Config) (*logstore.Store, storage.DirectoryID, error) {
	s, err := parseSettings(cfg.Settings)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	dir, err := filepath.Abs(s.Path)
	if err != nil {
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrInvalid, "path %q: %v", s.Path, err)
	}
	boot := s.BootID
	if boot == "" {
		if boot, err = bootID(); err != nil {
			return nil, storage.DirectoryID{}, err
		}
	}
	descriptors, err := vfs.Descriptors()
	if err != nil {
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrRetry, "ask for the limit of open files: %v", err)
	}
	return logstore.Open(p.fs, logstore.Config{
		Dir:          dir,
		Identity:     cfg.Identity,
		Proposed:     cfg.ProposedDirectoryID,
		BootID:       boot,
		Note:         fmt.Sprintf("process %d", os.Getpid()),
		ReserveBytes: int64(s.Reserve),
		SpareBytes:   spareBytes,
		Runners:      s.Runners,
		Syncers:      s.Syncers,
		Descriptors:  descriptors,
		Options: storage.LogOptions{
			SegmentBytes:       int64(s.SegmentBytes),
			SegmentAge:         time.Duration(s.SegmentAge),
			IndexIntervalBytes: int64(s.IndexInterval),
		},
	}, p.now, cfg.Logger)
}

// bootID asks the system. One that has no such file gets an id of this
// process, so that each start counts as one of the machine.
func bootID() (string, error) {
	b, err := os.ReadFile(bootIDFile)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Sprintf("process-%d-%d", os.Getpid(), time.Now().UnixNano()), nil
	}
	if err != nil {
		return "", storage.Errorf(storage.ErrGone, "read the machine's boot id: %v", err)
	}
	return strings.TrimSpace(string(b)), nil
}
