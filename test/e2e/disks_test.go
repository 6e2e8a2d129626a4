package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a disk of so many bytes, as mount writes them, in a new directory of
// this name. It is gone when the test ends. It needs root.
func smallDisk(t *testing.T, dir, bytes string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+bytes); err != nil {
		t.Fatalf("mount a small disk (this test needs root): %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// breakableDisk mounts an ext4 file system of its own in a new directory of this name, and
// returns what breaks it: from then on nothing can be written, as where the kernel has met
// an error of the disk (errors=remount-ro); what is there can be read. It needs root, loop
// devices and mkfs.ext4.
func breakableDisk(t *testing.T, dir string) (readOnly func()) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 256<<20); err != nil {
		t.Fatal(err)
	}
	command := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(testContext(t, startTimeout), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v (this test needs root): %v\n%s", name, args, err, out)
		}
	}
	command(tool(t, "mkfs"), "-q", image)
	command("mount", "-o", "loop,errors=remount-ro", image, dir)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return func() { command("mount", "-o", "remount,abort", dir) }
}
