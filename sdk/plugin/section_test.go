package plugin_test

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/internal/filestore"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// sectionsOf reads a log by sections, and by reads where there are none. It checks all
// that comes, and returns how many bytes came as sections.
func sectionsOf(t *testing.T, s *plugin.Store, h storage.Handle, upTo int64, most int) (sent int) {
	t.Helper()
	for at := int64(0); at < upTo; {
		req := storage.ReadRequest{Handle: h, Offset: at, UpTo: upTo, MaxBytes: most, AtLeastOne: true}
		section, ok := s.ReadSection(req)
		data, next := make([]byte, section.Bytes), section.Next
		if ok {
			if section.Bytes > most {
				t.Fatalf("%d bytes where %d were asked for", section.Bytes, most)
			}
			if _, err := section.File.ReadAt(data, section.Pos); err != nil {
				t.Fatal(err)
			}
			section.Owner.Release(false)
			sent += len(data)
		} else {
			res, err := s.Read(t.Context(), req)
			if err != nil || len(res.Data) == 0 {
				t.Fatalf("read at %d: %d bytes, %v", at, len(res.Data), err)
			}
			data, next = res.Data, res.Next
		}
		for len(data) > 0 {
			info, _, rest, err := recordbatch.Next(data)
			if err != nil || info.BaseOffset != at {
				t.Fatalf("at %d (section: %v) is a batch of offset %d: %v", at, ok, info.BaseOffset, err)
			}
			data, at = rest, at+1
		}
		if next != at {
			t.Fatalf("the next offset is %d behind a batch of offset %d", next, at-1)
		}
	}
	return sent
}

// mustSection gives a section of what was read.
func mustSection(t testing.TB, s *plugin.Store, req storage.ReadRequest) storage.Section {
	t.Helper()
	section, ok := s.ReadSection(req)
	if !ok {
		t.Fatal("no section of what was read")
	}
	return section
}

// What was read and checked once is had from its file then, whoever reads it and from
// wherever he begins; what the log's changes have touched is read again.
func TestSections(t *testing.T) {
	s := lend(t, filestore.Options{Granted: func(g *storage.Grant) error { g.FileID = 0; return nil }})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 4000)
	if sent := sectionsOf(t, s, h, 4000, 200<<10); sent > 0 {
		t.Errorf("%d bytes were not checked", sent)
	}
	if sent := sectionsOf(t, s, h, 4000, 200<<10); sent < 600<<10 {
		t.Errorf("only %d bytes are had from the file after they were read", sent)
	}
	if _, err := s.Truncate(t.Context(), h, 1, 3000); err != nil {
		t.Fatal(err)
	}
	if sent := sectionsOf(t, s, h, 3000, 200<<10); sent > 0 {
		t.Errorf("%d bytes were not checked since the log was truncated", sent)
	}
	fill(t, s, h, 3000, 5000)
	sectionsOf(t, s, h, 5000, 100<<10)
	if sent := sectionsOf(t, s, h, 5000, 100<<10); sent < 600<<10 {
		t.Errorf("only %d bytes are had from the file", sent)
	}
}

// What the host wrote itself it need not check again.
func TestSectionsOfGrantedWrites(t *testing.T) {
	var leases atomic.Int64
	s := lend(t, filestore.Options{Leased: func(*storage.Lease) error { leases.Add(1); return nil }})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 4000)
	if sent := sectionsOf(t, s, h, 4000, 200<<10); sent < 400<<10 {
		t.Errorf("only %d bytes are had from the file, by %d leases", sent, leases.Load())
	}
}

// A section stays as it was while its log is truncated, trimmed, and its plugin gone.
func TestSectionOutlivesItsLog(t *testing.T) {
	s := lend(t, filestore.Options{})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	sectionsOf(t, s, h, 2000, 200<<10)
	req := storage.ReadRequest{Handle: h, UpTo: 2000, MaxBytes: 200 << 10}
	want, err := s.Read(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	section := mustSection(t, s, req)
	same := func(when string) {
		t.Helper()
		got := make([]byte, section.Bytes)
		if _, err := section.File.ReadAt(got, section.Pos); err != nil || !bytes.Equal(got, want.Data[:len(got)]) {
			t.Errorf("other bytes %s: %v", when, err)
		}
	}
	if _, err := s.Truncate(t.Context(), h, 1, 10); err != nil {
		t.Fatal(err)
	}
	fill(t, s, h, 10, 1000)
	same("after a truncation")
	if _, err := s.Trim(t.Context(), h, 900); err != nil {
		t.Fatal(err)
	}
	same("after a trim")
	s.Abandon()
	same("after the plugin's end")
	section.Owner.Release(false)
	if _, err := section.File.Stat(); err == nil {
		t.Error("the file is still open")
	}
}

// A section whose file could not be sent is read by checking from then on.
func TestDamagedSection(t *testing.T) {
	s := lend(t, filestore.Options{})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	sectionsOf(t, s, h, 2000, 200<<10)
	req := storage.ReadRequest{Handle: h, UpTo: 2000, MaxBytes: 200 << 10}
	section := mustSection(t, s, req)
	section.Owner.Release(true)
	if again, ok := s.ReadSection(req); ok {
		t.Errorf("%d bytes without a check", again.Bytes)
	}
	if err := readAll(t.Context(), s, h, 0, 2000); err != nil {
		t.Error(err)
	}
}

// Another file under the ID of one that was checked is not taken for it.
func TestSectionsOfAnotherFile(t *testing.T) {
	other := t.TempDir() + "/other"
	if err := os.WriteFile(other, bytes.Repeat(appendOf(1, 3, 200).Data[0], 4000), 0o600); err != nil {
		t.Fatal(err)
	}
	var wrong atomic.Bool
	s := lend(t, filestore.Options{Leased: func(l *storage.Lease) (err error) {
		if wrong.Load() {
			_ = l.File.Close()
			l.File, err = os.Open(other)
		}
		return err
	}})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	wrong.Store(true)
	sectionsOf(t, s, h, 2000, 100<<10)
	sectionsOf(t, s, h, 2000, 100<<10)
}

func TestReadSectionDoesNotAllocate(t *testing.T) {
	s := lend(t, filestore.Options{})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	sectionsOf(t, s, h, 2000, 200<<10)
	req := storage.ReadRequest{Handle: h, UpTo: 2000, MaxBytes: 200 << 10}
	if n := testing.AllocsPerRun(100, func() {
		mustSection(t, s, req).Owner.Release(false)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a read has found damaged is not sent unread afterwards.
func TestNoSectionOfWhatWasFoundDamaged(t *testing.T) {
	var path atomic.Pointer[string]
	s := lend(t, filestore.Options{Leased: func(l *storage.Lease) error {
		name := l.File.Name()
		path.Store(&name)
		return nil
	}})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	sectionsOf(t, s, h, 2000, 200<<10)
	req := storage.ReadRequest{Handle: h, UpTo: 2000, MaxBytes: 200 << 10}
	section := mustSection(t, s, req)
	damage(t, *path.Load(), section.Pos+int64(section.Bytes)/2)
	section.Owner.Release(false)
	small := storage.ReadRequest{Handle: h, UpTo: 2000, MaxBytes: 1000, AtLeastOne: true}
	for small.Offset = range int64(1000) {
		_, _ = s.Read(t.Context(), small) // one of these finds it
	}
	small.Offset = 0
	for range 40 { // until leases are asked for again
		if _, err := s.Read(t.Context(), small); err != nil {
			t.Fatal(err)
		}
	}
	section, ok := s.ReadSection(req)
	if !ok {
		return
	}
	data := make([]byte, section.Bytes)
	if _, err := section.File.ReadAt(data, section.Pos); err != nil {
		t.Fatal(err)
	}
	section.Owner.Release(false)
	for len(data) > 0 {
		var err error
		if _, _, data, err = recordbatch.Next(data); err != nil {
			t.Fatalf("a section of %d bytes: %v", section.Bytes, err)
		}
	}
}

// damage changes a byte, as a disk does.
func damage(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// However many sections are held, their files are few.
func TestSectionsKeepFewFilesOpen(t *testing.T) {
	const logs = 900
	s := lend(t, filestore.Options{})
	var held []storage.Section
	for i := range int32(logs) {
		h := openLog(t, s, i).Handle
		fill(t, s, h, 0, 500)
		sectionsOf(t, s, h, 500, 200<<10)
		if section, ok := s.ReadSection(storage.ReadRequest{Handle: h, UpTo: 500, MaxBytes: 200 << 10}); ok {
			held = append(held, section)
		}
	}
	if n := len(held); n < 256 || n >= logs || s.Held().Leases > 3*256 {
		t.Errorf("%d sections are held, of %d files", n, s.Held().Leases)
	}
	for _, section := range held {
		section.Owner.Release(false)
	}
	if n := s.Held().Leases; n > 256 {
		t.Errorf("%d leases are held when all sections were released", n)
	}
}
