package wire

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// decoded are the APIs that have no decoder of their own.
func decoded() []API {
	return slices.DeleteFunc(APIs(), func(a API) bool { return a.Key == KeyProduce || a.Key == KeyFetch || a.Key == KeyOffsetCommit })
}

func TestDecodeEveryVersion(t *testing.T) {
	table := NewTable()
	for _, a := range decoded() {
		for v := a.Serves; v <= a.Max; v++ {
			req := kmsg.RequestForKey(a.Key)
			req.SetVersion(v)
			body := req.AppendTo(nil)
			h := Header{Key: a.Key, Version: v}
			got, err := table.Decode(h, body)
			if err != nil {
				t.Errorf("%s version %d: %v", a.Name(), v, err)
				continue
			}
			if got.GetVersion() != v {
				t.Errorf("%s version %d was decoded as %d", a.Name(), v, got.GetVersion())
			}
			if _, err := table.Decode(h, append(body, "garbage"...)); err != nil {
				t.Errorf("%s version %d with bytes after it: %v", a.Name(), v, err)
			}
			if len(body) == 0 {
				continue
			}
			if _, err := table.Decode(h, body[:len(body)-1]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s version %d cut short: %v", a.Name(), v, err)
			}
		}
	}
}

func TestDecodeRefusesWhatIsNotServed(t *testing.T) {
	for _, h := range []Header{{Key: KeyProduce, Version: 2}, {Key: KeyProduce, Version: 99}, {Key: KeyFetch, Version: -1}, {Key: 28}, {Key: -1}, {Key: 32767}} {
		if _, err := NewTable().Decode(h, make([]byte, 64)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

// allocated measures what decoding allocates.
func allocated(h Header, body []byte) uint64 {
	table := NewTable()
	return allocatedBy(func() { _, _ = table.Decode(h, body) })
}

func allocatedBy(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHostileCounts(t *testing.T) {
	oversized := make([]byte, maxBodyBytes+1)
	fills := make(map[byte][]byte)
	for _, fill := range []byte{0x00, 0x01, 0x02, 0x7f, 0xff} {
		fills[fill] = bytes.Repeat([]byte{fill}, 16<<10)
	}
	for _, a := range decoded() {
		for v := a.Serves; v <= a.Max; v++ {
			h := Header{Key: a.Key, Version: v}
			if n := allocated(h, oversized); n > 64<<10 {
				t.Errorf("%s version %d: an oversized body allocated %d bytes", a.Name(), v, n)
			}
			for fill, body := range fills {
				if n := allocated(h, body); n > 64*uint64(len(body)) {
					t.Errorf("%s version %d: %d bytes of %#x allocated %d", a.Name(), v, len(body), fill, n)
				}
			}
		}
	}
}

// An array of -1 elements is null, which few may be; one of fewer means nothing.
func TestNegativeArrays(t *testing.T) {
	table := NewTable()
	for _, body := range []struct {
		header Header
		bytes  []byte
		ok     bool
	}{
		{Header{Key: KeyMetadata, Version: 8}, []byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0}, true},
		{Header{Key: KeyMetadata, Version: 8}, []byte{0xff, 0xff, 0xff, 0xfe, 1, 0, 0}, false},
		{Header{Key: int16(kmsg.OffsetFetch), Version: 1}, []byte{0, 1, 'g', 0xff, 0xff, 0xff, 0xff}, false},
		{Header{Key: int16(kmsg.OffsetFetch), Version: 2}, []byte{0, 1, 'g', 0xff, 0xff, 0xff, 0xff}, true}, // all
		{Header{Key: int16(kmsg.OffsetDelete), Version: 0}, []byte{0xff, 0xff, 0, 0, 0, 0}, false},
		{Header{Key: int16(kmsg.SyncGroup), Version: 4}, []byte{2, 'g', 0, 0, 0, 1, 2, 'm', 0, 1, 0}, true},
		{Header{Key: int16(kmsg.SyncGroup), Version: 4}, []byte{2, 'g', 0, 0, 0, 1, 2, 'm', 0, 0, 0}, false},
	} {
		if _, err := table.Decode(body.header, body.bytes); (err == nil) != body.ok || (err != nil && !errors.Is(err, ErrMalformed)) {
			t.Errorf("key %d, %x: %v", body.header.Key, body.bytes, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, a := range decoded() {
		for v := a.Serves; v <= a.Max; v++ {
			req := kmsg.RequestForKey(a.Key)
			req.SetVersion(v)
			f.Add(a.Key, v, req.AppendTo(nil))
		}
	}
	f.Add(KeyFetch, int16(12), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	table := NewTable()
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		req, err := table.Decode(Header{Key: key, Version: version}, body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error without its sentinel: %v", err)
			}
			return
		}
		if req.Key() != key || req.GetVersion() != version {
			t.Fatalf("decoded key %d version %d as %d, %d", key, version, req.Key(), req.GetVersion())
		}
	})
}
