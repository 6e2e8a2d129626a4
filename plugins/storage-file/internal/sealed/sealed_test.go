package sealed

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
)

var kind = Kind{Magic: "TEST", Version: 3}

func TestDecodeRefusesEveryChange(t *testing.T) {
	whole := Encode(kind, []byte("payload"))
	if got, err := Decode(kind, whole); err != nil || string(got) != "payload" {
		t.Fatalf("decode: %q, %v", got, err)
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x40
		if _, err := Decode(kind, b); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := Decode(kind, whole[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d: %v", i, err)
		}
	}
	if _, err := Decode(Kind{Magic: "TEST", Version: 2}, whole); !errors.Is(err, ErrVersion) {
		t.Errorf("newer version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(kind, []byte("payload")))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, err := Decode(kind, b)
		if err == nil && !bytes.HasPrefix(b, Encode(kind, payload)) && b[6] == 0 && b[7] == 0 {
			t.Errorf("decoded %q out of other bytes", payload)
		}
	})
}

// At every change of the file system, the file holds the old value or the new
// one, and the new one once Replace returned.
func TestReplaceIsAtomic(t *testing.T) {
	errCrash := errors.New("crash")
	for n := 1; ; n++ {
		var dead atomic.Bool
		fs := vfs.NewMem(vfs.MemConfig{Before: func(op vfs.Op) error {
			if op.N >= n {
				dead.Store(true)
			}
			if dead.Load() {
				return errCrash
			}
			return nil
		}})
		oldErr := Replace(fs, "/v", kind, []byte("old"))
		newErr := Replace(fs, "/v", kind, []byte("new"))
		dead.Store(true)
		for seed := range uint64(10) {
			for _, after := range []*vfs.Mem{
				fs.AfterKill(vfs.MemConfig{}), fs.AfterPowerLoss(vfs.MemConfig{}, rand.New(rand.NewPCG(seed, 1))),
			} {
				got, err := Read(after, "/v", kind, 100)
				switch {
				case newErr == nil && string(got) != "new",
					oldErr == nil && string(got) != "new" && string(got) != "old",
					errors.Is(err, ErrDamaged):
					t.Fatalf("change %d, seed %d: %q, %v", n, seed, got, err)
				}
			}
		}
		if newErr == nil {
			return
		}
	}
}
