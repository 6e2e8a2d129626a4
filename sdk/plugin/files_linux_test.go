package plugin_test

import (
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/plugin/internal/filestore"
	"github.com/brokerd/brokerd/sdk/storage"
)

// A write that fails is not the end: the plugin gets the append instead.
func TestFailedWriteGoesToThePlugin(t *testing.T) {
	var lent atomic.Int64
	s := lend(t, filestore.Options{Granted: func(g *storage.Grant) error {
		lent.Add(1)
		fd, err := unix.MemfdCreate("full", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		g.File = os.NewFile(uintptr(fd), "full")
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW)
		return err
	}})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 100)
	if lent.Load() < 2 {
		t.Errorf("%d grants", lent.Load())
	}
	if err := readAll(t.Context(), s, h, 0, 100); err != nil {
		t.Error(err)
	}
}
