package storagefile

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/logstore"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
	"github.com/brokerd/brokerd/sdk/storage/storagetest/storagetesting"
)

// machine is a machine with a disk in memory.
type machine struct {
	mu     sync.Mutex
	fs     *vfs.Mem
	frozen *atomic.Bool // the process that used fs was killed
	boots  int
}

func newMachine() *machine {
	m := &machine{frozen: new(atomic.Bool)}
	m.fs = vfs.NewMem(m.config())
	return m
}

func (m *machine) config() vfs.MemConfig {
	frozen := m.frozen
	return vfs.MemConfig{Before: func(vfs.Op) error {
		if frozen.Load() {
			return errors.New("the process was killed")
		}
		return nil
	}}
}

// machines is a provider of stores on machines, one for each path.
type machines struct {
	mu   sync.Mutex
	all  map[string]*machine
	next int
}

func (ms *machines) of(cfg storage.Config) *machine {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	var s struct {
		Path string `json:"path"`
	}
	_ = json.Unmarshal(cfg.Settings, &s) // the provider refuses what is wrong
	m := ms.all[s.Path]
	if m == nil {
		m = newMachine()
		ms.all[s.Path] = m
	}
	return m
}

func (ms *machines) Info() storage.Info { return Provider().Info() }

func (ms *machines) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	m := ms.of(cfg)
	m.mu.Lock()
	fs, boot := m.fs, fmt.Sprint("boot-", m.boots)
	m.mu.Unlock()
	var section map[string]any
	if err := json.Unmarshal(cfg.Settings, &section); err == nil {
		section["boot_id"] = boot
		if cfg.Settings, err = json.Marshal(section); err != nil {
			return nil, storage.DirectoryID{}, err
		}
	}
	p := &provider{fs: fs, now: time.Now}
	return p.Open(ctx, cfg)
}

func (ms *machines) fresh() (storage.Config, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.next++
	return config(fmt.Sprintf("/store-%d", ms.next)), nil
}

func config(path string) storage.Config {
	return storage.Config{
		Settings:            fmt.Appendf(nil, `{"path":%q,"reserve":"4KiB"}`, path),
		Identity:            storage.Identity{ClusterID: "conformance", NodeID: 1},
		ProposedDirectoryID: storage.DirectoryID{4, 2},
	}
}

// end ends the process, and gives the machine the file system that next makes
// of the one it leaves.
func (m *machine) end(ctx context.Context, stores []storage.Store, next func(*vfs.Mem, vfs.MemConfig) *vfs.Mem) {
	m.mu.Lock()
	m.frozen.Store(true)
	m.frozen = new(atomic.Bool)
	m.fs = next(m.fs, m.config())
	m.mu.Unlock()
	for _, s := range stores {
		_ = s.Shutdown(ctx) // it cannot write any more
	}
}

func (ms *machines) hooks() storagetest.Hooks {
	return storagetest.Hooks{
		Kill: func(ctx context.Context, cfg storage.Config, stores []storage.Store) error {
			ms.of(cfg).end(ctx, stores, func(fs *vfs.Mem, c vfs.MemConfig) *vfs.Mem { return fs.AfterKill(c) })
			return nil
		},
		LosePower: func(ctx context.Context, cfg storage.Config, stores []storage.Store, seed uint64) error {
			m := ms.of(cfg)
			m.boots++
			m.end(ctx, stores, func(fs *vfs.Mem, c vfs.MemConfig) *vfs.Mem {
				return fs.AfterPowerLoss(c, rand.New(rand.NewPCG(seed, 1)))
			})
			return nil
		},
		Overwrite: func(_ context.Context, cfg storage.Config, id storage.LogID, batch []byte, at int, with []byte) error {
			return change(ms.of(cfg).fs, pathOf(cfg), id, batch, func(f vfs.File, pos int64) error {
				_, err := f.WriteVecAt([][]byte{with}, pos+int64(at))
				return err
			})
		},
		Tear: func(_ context.Context, cfg storage.Config, id storage.LogID, batch []byte, keep int) error {
			return change(ms.of(cfg).fs, pathOf(cfg), id, batch, func(f vfs.File, pos int64) error {
				return f.Truncate(pos + int64(keep))
			})
		},
		DamageDerived: func(_ context.Context, cfg storage.Config, seed uint64) error {
			return damageDerived(ms.of(cfg).fs, pathOf(cfg), rand.New(rand.NewPCG(seed, 2)))
		},
		SetFree: func(_ context.Context, cfg storage.Config, bytes int64) error {
			fs := ms.of(cfg).fs
			if bytes < 0 {
				fs.SetCapacity(0)
			} else {
				fs.SetCapacity(fs.Used() + bytes)
			}
			return nil
		},
	}
}

func pathOf(cfg storage.Config) string {
	s, err := parseSettings(cfg.Settings)
	if err != nil {
		panic(err) // the test's own settings
	}
	return s.Path
}

// change does f to the segment file that holds the batch, and removes the
// segments after it if f cut it.
func change(fs vfs.FS, store string, id storage.LogID, batch []byte, f func(vfs.File, int64) error) error {
	logs, err := fs.List(store)
	if err != nil {
		return err
	}
	suffix := fmt.Sprintf("-%d.%s", id.Partition, hex.EncodeToString(id.Topic[:]))
	for _, l := range logs {
		if !strings.HasSuffix(l.Name, suffix) {
			continue
		}
		dir := store + "/" + l.Name
		files, err := fs.List(dir)
		if err != nil {
			return err
		}
		for _, e := range files {
			if !strings.HasSuffix(e.Name, ".log") {
				continue
			}
			b, err := vfs.ReadAll(fs, dir+"/"+e.Name, 1<<30)
			if err != nil {
				return err
			}
			pos := bytes.Index(b, batch)
			if pos < 0 {
				continue
			}
			file, err := fs.Open(dir+"/"+e.Name, vfs.Existing)
			if err != nil {
				return err
			}
			if err := f(file, int64(pos)); err != nil {
				return err
			}
			if n, _, err := file.Stat(); err != nil || n == int64(len(b)) {
				return err
			}
			for _, later := range files {
				if strings.HasSuffix(later.Name, ".log") && later.Name > e.Name {
					if err := fs.Remove(dir + "/" + later.Name); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	return errors.New("the batch is not stored")
}

// damageDerived spoils indexes, hints and metas.
func damageDerived(fs vfs.FS, store string, r *rand.Rand) error {
	logs, err := fs.List(store)
	if err != nil {
		return err
	}
	for _, l := range logs {
		if !l.Dir {
			continue
		}
		files, err := fs.List(store + "/" + l.Name)
		if err != nil {
			return err
		}
		for _, e := range files {
			name := store + "/" + l.Name + "/" + e.Name
			if !isDerived(name) {
				continue
			}
			if r.IntN(3) == 0 {
				if err := fs.Remove(name); err != nil {
					return err
				}
				continue
			}
			f, err := fs.Open(name, vfs.Existing)
			if err != nil {
				return err
			}
			if r.IntN(2) == 0 {
				err = f.Truncate(r.Int64N(e.Bytes + 1))
			} else {
				garbage := make([]byte, e.Bytes)
				for i := range garbage {
					garbage[i] = byte(r.Uint32())
				}
				_, err = f.WriteVecAt([][]byte{garbage}, 0)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// The kit, on a machine in memory that can be killed, lose power and fill.
func TestConformanceInMemory(t *testing.T) {
	ms := &machines{all: map[string]*machine{}}
	for _, seed := range []uint64{1, 2} {
		storagetesting.RunT(t, storagetest.Direct(ms, ms.fresh, ms.hooks()), storagetest.Options{Seed: seed})
	}
}

// memoryDir is a directory on a file system in memory where there is one: what
// a disk takes for its syncs says nothing here.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "storage-file-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// The kit, on real files, which are lent to it: it writes them under grants, and
// reads them by leases, while the store is killed.
func TestConformanceOnFiles(t *testing.T) {
	ks := &killables{open: map[string][]*killable{}}
	report := storagetesting.RunT(t, storagetest.Direct(ks, freshOnFiles(t), ks.hooks()), storagetest.Options{})
	needs := map[string]storagetest.Abilities{}
	for _, c := range storagetest.Cases() {
		needs[c.Name] = c.Needs
	}
	for _, r := range report.Results {
		if need := needs[r.Name]; r.Status == storagetest.NotApplicable && !need.LosePower && !need.Fill {
			t.Errorf("%s did not run: %s", r.Name, r.Message)
		}
	}
}

var _ storage.Store = (*logstore.Store)(nil)
