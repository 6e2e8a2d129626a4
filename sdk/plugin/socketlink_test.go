package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/sdk/storage"
)

// pair makes two connected sockets.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	a, b, err := SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a, b
}

// Units come out of a socket as they went in, whatever their sizes, also when
// somebody holds on to some, and however the bytes were cut on their way.
func TestSocketCarriesUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(
			rapid.IntRange(0, 300), rapid.IntRange(copyBytesMax-2, copyBytesMax+2),
			rapid.IntRange(0, 300<<10), rapid.SampledFrom([]int{smallChunkBytes, largeChunkBytes, 3 << 20}),
		), 1, 20).Draw(t, "sizes")
		cut := rapid.IntRange(1, 100<<10).Draw(t, "cut")
		holdEvery := rapid.IntRange(1, 8).Draw(t, "hold")
		a, b, err := SocketPair()
		if err != nil {
			t.Fatal(err)
		}
		want := make([][]byte, len(sizes))
		total := 0
		batch := requests{}
		for i, size := range sizes {
			want[i] = bytes.Repeat([]byte{byte(i + 1)}, size)
			total += size
			half := size / 2
			batch = append(batch, &call{req: request{
				head:   head{kind: kindAppend, seq: uint64(i)},
				append: storage.AppendRequest{Data: [][]byte{want[i][:half], want[i][half:]}},
			}})
		}
		sent := make(chan error, 1)
		go func() { sent <- sendCut(&batch, a, max(cut, total/200)) }()
		type held struct {
			n    int
			data []byte
			mem  memory
		}
		var holds []held
		n := 0
		err = newSocketLink(b).receive(func(in incoming) error {
			var r request
			if err := parseRequest(in.unit, &r); err != nil {
				return err
			}
			data := r.append.Data[0]
			if !bytes.Equal(data, want[n]) || r.seq != uint64(n) {
				return fmt.Errorf("unit %d of %d bytes is another", n, len(data))
			}
			if n%holdEvery == 0 {
				in.mem.Ref()
				holds = append(holds, held{n, data, in.mem})
			}
			n++
			return nil
		})
		if !errors.Is(err, io.EOF) || n != len(sizes) {
			t.Fatalf("%d of %d units: %v", n, len(sizes), err)
		}
		for _, h := range holds {
			if !bytes.Equal(h.data, want[h.n]) {
				t.Fatalf("unit %d changed while it was held", h.n)
			}
			h.mem.Free()
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		_ = b.Close()
	})
}

// sendCut sends units to a, in writes of `cut` bytes, and closes it.
func sendCut(batch *requests, a *net.UnixConn, cut int) error {
	defer func() { _ = a.Close() }()
	near, far, err := SocketPair()
	if err != nil {
		return err
	}
	go func() {
		_ = newSocketLink(near).send(batch)
		_ = near.Close()
	}()
	defer func() { _ = far.Close() }()
	_, err = io.CopyBuffer(struct{ io.Writer }{a}, struct{ io.Reader }{far}, make([]byte, cut))
	return err
}

// Each descriptor arrives with its own unit, among units without one.
func TestSocketPassesDescriptors(t *testing.T) {
	a, b := pair(t)
	dir := t.TempDir()
	var batch answers
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		one := answer{head: head{kind: kindRead | kindAnswer, seq: uint64(i)}, read: storage.ReadResult{Data: make([]byte, rng.IntN(20<<10))}}
		if rng.IntN(3) == 0 {
			f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			one = answer{head: head{kind: kindLease | kindAnswer, seq: uint64(i)}, lease: storage.Lease{ID: 1}, file: f}
		}
		batch = append(batch, one)
	}
	sent := make(chan error, 1)
	go func() {
		sent <- newSocketLink(a).send(&batch)
		_ = a.Close()
	}()
	n, files := 0, 0
	err := newSocketLink(b).receive(func(in incoming) error {
		got, err := parseAnswer(in.unit)
		if err != nil {
			return err
		}
		with := batch[n].file
		if n++; (in.file != nil) != (with != nil) || (in.unit[7]&flagFile != 0) != (with != nil) {
			return fmt.Errorf("answer %d: file %v, sent %v", got.seq, in.file, with)
		}
		if with == nil {
			return nil
		}
		defer in.file.Close()
		files++
		x, err1 := in.file.Stat()
		y, err2 := with.Stat()
		if err1 != nil || err2 != nil || !os.SameFile(x, y) {
			return fmt.Errorf("answer %d has another file", got.seq)
		}
		return nil
	})
	if !errors.Is(err, io.EOF) || n != len(batch) || files == 0 {
		t.Errorf("%d answers with %d files: %v", n, files, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	for i := range batch {
		closeFile(batch[i].file)
	}
}

// A descriptor that the receiver has no room for is missed by its own unit, and by
// no other.
func TestLostDescriptorIsItsUnitsOwn(t *testing.T) {
	a, b := pair(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fill := func() (fds []int) {
		for {
			fd, err := syscall.Dup(0)
			if err != nil {
				return fds
			}
			fds = append(fds, fd)
		}
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	lowest, err := syscall.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Close(lowest)
	low := before
	low.Cur = uint64(lowest) + 16 // so many are free, however many tests before have left
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }()
	fds := fill()
	free := func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
		fds = nil
	}
	defer free()
	to := newSocketLink(a)
	unit := func(seq uint64) *answers {
		return &answers{{head: head{kind: kindLock | kindAnswer, seq: seq}, file: file}}
	}
	if err := to.send(unit(0)); err != nil {
		t.Fatal(err)
	}
	n := 0
	err = newSocketLink(b).receive(func(in incoming) error {
		defer closeFile(in.file)
		if (in.file != nil) != (n > 0) {
			return fmt.Errorf("unit %d: file %v", n, in.file)
		}
		if n++; n == 3 {
			return io.EOF
		}
		free()
		return to.send(unit(uint64(n)))
	})
	if !errors.Is(err, io.EOF) || n != 3 {
		t.Errorf("%d units: %v", n, err)
	}
}

// What is no unit ends the link, and makes nobody allocate for it.
func TestSocketRefusesNonsense(t *testing.T) {
	for name, wire := range map[string][]byte{
		"too short": {0, 0, 0, 1, 1, 1},
		"too long":  {0xff, 0xff, 0xff, 0xff, 1, 1},
	} {
		a, b := pair(t)
		if _, err := a.Write(wire); err != nil {
			t.Fatal(err)
		}
		if err := newSocketLink(b).receive(func(incoming) error { return nil }); !errors.Is(err, errUnit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, b := pair(t)
	if _, err := a.Write([]byte{0x1f, 0, 0, 0, 1, 1}); err != nil { // 496 MiB, of which 2 bytes come
		t.Fatal(err)
	}
	_ = a.Close()
	if err := newSocketLink(b).receive(func(incoming) error { return nil }); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
