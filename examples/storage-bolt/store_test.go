package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

var logA = storage.LogID{Topic: [16]byte{'a'}, Partition: 3}

func open(t *testing.T, path string) *store {
	t.Helper()
	cfg, err := configFor(path)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := newProvider(deviceRoom).Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*store)
}

func openA(t *testing.T, s *store) storage.OpenResult {
	t.Helper()
	return s.Open(t.Context(), []storage.OpenSpec{{ID: logA, Label: "a", Create: true, LeaderEpoch: 1}})[0]
}

// appendOne appends a batch of one offset and returns what becomes of it.
func appendOne(t *testing.T, s *store, h storage.Handle, offset int64) <-chan error {
	t.Helper()
	data := recordbatch.Build(nil, recordbatch.Header{
		Info:    recordbatch.Info{BaseOffset: offset, LastOffset: offset, LeaderEpoch: 1, Records: 1},
		Payload: []byte("one record"),
	})
	info, err := recordbatch.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	s.Append(t.Context(), storage.AppendRequest{
		Handle: h, LeaderEpoch: 1, BaseOffset: offset, Batches: []storage.BatchInfo{info}, Data: [][]byte{data},
	}, func(_ storage.AppendResult, err error) { done <- err })
	return done
}

// TestDamage: every byte of a stored batch may be damaged, and is found by the
// next opening, or by the reads that meet it, unless no CRC covers it.
func TestDamage(t *testing.T) {
	path := filepath.Join(memoryDir(t), "logs.db")
	for name, at := range map[string]int{"base offset": 7, "length": 11, "magic": 16, "CRC": 17, "records": recordbatch.HeaderBytes + 3} {
		s := open(t, path)
		h := openA(t, s).Handle
		if err := <-appendOne(t, s, h, 0); err != nil {
			t.Fatal(err)
		}
		err := s.change(func(tx *bolt.Tx) error {
			b := findLog(tx, logA).batches()
			v := append([]byte(nil), b.Get(offsetKey(0))...)
			v[writtenBytes+at] ^= 1
			return b.Put(offsetKey(0), v)
		})
		if err != nil {
			t.Fatal(err)
		}
		_, read := s.Read(t.Context(), storage.ReadRequest{Handle: h, UpTo: 1, MaxBytes: 1 << 20})
		if !errors.Is(read, storage.ErrCorrupt) {
			t.Errorf("%s damaged: a read gives %v; want corrupt", name, read)
		}
		if err := s.Delete(t.Context(), logA); err != nil {
			t.Errorf("%s damaged: the log cannot be deleted: %v", name, err)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedWrite: when bbolt cannot write, whoever waits is told that the
// outcome is open, and the store is used no more.
func TestFailedWrite(t *testing.T) {
	path := filepath.Join(memoryDir(t), "logs.db")
	s := open(t, path)
	h := openA(t, s).Handle
	disk := errors.New("the disk is on fire")
	if err := s.change(func(*bolt.Tx) error { return disk }); !errors.Is(err, storage.ErrGone) || !strings.Contains(err.Error(), disk.Error()) {
		t.Errorf("a failed write gives %v; want gone, with the reason", err)
	}
	if err := <-appendOne(t, s, h, 0); !errors.Is(err, storage.ErrGone) {
		t.Errorf("an append after it gives %v; want gone", err)
	}
	if _, err := s.Read(t.Context(), storage.ReadRequest{Handle: h, UpTo: 1}); !errors.Is(err, storage.ErrGone) {
		t.Errorf("a read after it gives %v; want gone", err)
	}
	<-s.ended
	again := open(t, path)
	if r := openA(t, again); r.Err != nil || r.LEO != 0 {
		t.Errorf("opened again, the log ends at %d: %v", r.LEO, r.Err)
	}
	if err := again.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSharedCommit: an append that is refused takes none of those with it that
// share its transaction.
func TestSharedCommit(t *testing.T) {
	s := open(t, filepath.Join(memoryDir(t), "logs.db"))
	h := openA(t, s).Handle
	hold := make(chan struct{})
	go func() { _ = s.change(func(*bolt.Tx) error { <-hold; return nil }) }()
	var outcomes []<-chan error
	for _, offset := range []int64{0, 1, 7, 2} {
		outcomes = append(outcomes, appendOne(t, s, h, offset))
	}
	close(hold)
	for i, want := range []error{nil, nil, storage.ErrInvalid, nil} {
		if err := <-outcomes[i]; !errors.Is(err, want) {
			t.Errorf("append %d gives %v; want %v", i, err, want)
		}
	}
	if r := openA(t, s); r.LEO != 3 {
		t.Errorf("the log ends at %d; want 3", r.LEO)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSettings(t *testing.T) {
	for section, want := range map[string]string{
		`{}`:                              "path is missing",
		`{"path":"x","size":1}`:           `"size"`,
		`{"path":"x","reserve_bytes":-1}`: "reserve_bytes is -1",
		`{"path":7}`:                      "path",
		`nonsense`:                        "settings of storage-bolt",
	} {
		_, err := readSettings([]byte(section))
		if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v; want an error that says %s", section, err, want)
		}
	}
}
