package storagefile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// lentLog is a log on real files with one batch in it.
func lentLog(t *testing.T) (store storage.Store, res storage.OpenResult, cfg storage.Config, first []byte) {
	t.Helper()
	cfg = config(memoryDir(t) + "/store")
	p := &provider{fs: vfs.OS{}, now: time.Now}
	store, _, err := p.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Shutdown(context.Background()) }) // it may be shut down
	res = store.Open(t.Context(), []storage.OpenSpec{{ID: storage.LogID{Partition: 1}, Label: "lent", Create: true}})[0]
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	first, info := record(t, 0, 'a')
	mustAppend(t, store, storage.AppendRequest{Handle: res.Handle, Batches: []storage.BatchInfo{info}, Data: [][]byte{first}})
	return store, res, cfg, first
}

func mustAppend(t *testing.T, store storage.Store, req storage.AppendRequest) storage.AppendResult {
	t.Helper()
	type answer struct {
		res storage.AppendResult
		err error
	}
	done := make(chan answer, 1)
	store.Append(t.Context(), req, func(res storage.AppendResult, err error) { done <- answer{res, err} })
	a := <-done
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a.res
}

// A host writes through the file that it was lent, which is read through a lease,
// also when the log is gone.
func TestFilesAreLent(t *testing.T) {
	store, res, _, first := lentLog(t)
	if c := store.Capabilities(); !c.Grants || !c.Leases {
		t.Fatalf("capabilities %+v", c)
	}
	files := store.Files()
	g, err := files.Grant(t.Context(), res.Handle, 0, storage.SurvivesMachine)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.File.Close() }() // synced by the store
	second, info := record(t, 1, 'b')
	if _, err := g.File.WriteAt(second, g.Pos); err != nil {
		t.Fatal(err)
	}
	got := mustAppend(t, store, storage.AppendRequest{
		Handle: res.Handle, BaseOffset: 1, Batches: []storage.BatchInfo{info}, Granted: g.ID, Pos: g.Pos, Require: storage.SurvivesMachine,
	})
	if got.LEO != 2 || got.Durable != 2 {
		t.Errorf("told append: %+v", got)
	}
	lease, err := files.Lease(t.Context(), res.Handle, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.File.Close() }() // only read
	if lease.Pos != int64(len(first)) || lease.First != 1 || lease.End != 2 || lease.Gaps {
		t.Errorf("lease %+v", lease)
	}
	if _, err := lease.File.WriteAt([]byte{1}, 0); err == nil {
		t.Error("wrote through a lease")
	}
	for _, f := range []*os.File{g.File, lease.File} {
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a child inherits %s: flags %d, %v", f.Name(), flags, err)
		}
	}
	if err := store.Delete(t.Context(), storage.LogID{Partition: 1}); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(lease.File, lease.Pos, lease.Limit-lease.Pos))
	if err != nil || !bytes.Equal(b, second) {
		t.Errorf("read %d bytes of a deleted log, %v", len(b), err)
	}
	files.Return([]storage.LeaseID{lease.ID})
	if _, err := files.Grant(t.Context(), res.Handle, 0, 0); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("grant of a deleted log: %v", err)
	}
}

// The store is locked as long as the host holds the lock, also when the store is
// gone.
func TestLockIsLent(t *testing.T) {
	store, _, cfg, _ := lentLog(t)
	lock, err := store.Files().Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &provider{fs: vfs.OS{}, now: time.Now}
	if _, _, err := p.Open(t.Context(), cfg); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("another opener: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, _, err := p.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Files().Lock(); !errors.Is(err, storage.ErrGone) {
		t.Errorf("lock of a store that was shut down: %v", err)
	}
	if err := again.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}
