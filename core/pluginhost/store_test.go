package pluginhost_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/brokerd/brokerd/sdk/storage"
)

// A store in memory counts handles from 1 in each process, so that the numbers
// repeat.
func TestHandlesEndWithTheirProcess(t *testing.T) {
	s, w := serving(t, config())
	old := openLog(t, s, 0).Handle
	kill(t, w.wait(t, pluginhost.Started, 1).Pid, syscall.SIGKILL)
	w.wait(t, pluginhost.Started, 2)
	fresh := openLog(t, s, 0).Handle
	if fresh == old {
		t.Fatal("the handles are equal")
	}
	results := s.Flush(t.Context(), []storage.Handle{old, fresh})
	if !errors.Is(results[0].Err, storage.ErrGone) || results[1].Err != nil {
		t.Errorf("flush: %v and %v, want gone and nil", results[0].Err, results[1].Err)
	}
	for name, err := range calls(t, s, old) {
		if !errors.Is(err, storage.ErrGone) {
			t.Errorf("%s with an old handle: %v, want gone", name, err)
		}
	}
	for name, err := range calls(t, s, fresh) {
		if err != nil {
			t.Errorf("%s with a new handle: %v", name, err)
		}
	}
	errs := s.Close(t.Context(), []storage.Handle{fresh, old})
	if errs[0] != nil || !errors.Is(errs[1], storage.ErrGone) {
		t.Errorf("close: %v and %v, want nil and gone", errs[0], errs[1])
	}
	if s.DirectoryID() != (storage.DirectoryID{7}) {
		t.Errorf("directory ID %x", s.DirectoryID())
	}
	if s.Capabilities().Survives == storage.SurvivesUnset {
		t.Error("no capabilities")
	}
}

// calls makes every call that takes one handle.
func calls(t *testing.T, s storage.Store, h storage.Handle) map[string]error {
	t.Helper()
	ctx := t.Context()
	out := map[string]error{"append": appendOne(s, h, 0)}
	_, out["read"] = s.Read(ctx, storage.ReadRequest{Handle: h, UpTo: 1, MaxBytes: 1 << 20})
	_, out["scan"] = s.Scan(ctx, storage.ScanRequest{Handle: h, UpTo: 1})
	replacement := appendOf(h, 0)
	out["replace"] = s.Replace(ctx, storage.ReplaceRequest{Handle: h, To: 1, Batches: replacement.Batches, Data: replacement.Data[0]})
	_, _, out["find timestamp"] = s.FindTimestamp(ctx, storage.TimestampQuery{Handle: h, UpTo: 1})
	out["put blob"] = s.PutBlob(ctx, h, "state", storage.Blob{Offset: 0, Data: []byte("x")})
	_, _, out["get blob"] = s.GetBlob(ctx, h, "state")
	_, out["retain"] = s.Retain(ctx, h, storage.RetainPolicy{MaxBytes: -1})
	_, out["trim"] = s.Trim(ctx, h, 0)
	_, out["truncate"] = s.Truncate(ctx, h, 1, 0)
	return out
}
