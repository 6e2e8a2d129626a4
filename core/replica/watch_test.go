package replica

import (
	"testing"

	"pgregory.net/rapid"
)

func (w *watcher) woken() bool {
	select {
	case <-w.wake:
		return true
	default:
		return false
	}
}

// Who changes a replica wakes few himself: of many he only says that they are there,
// and they are woken a few at a time, without keeping him from the next change.
func TestManyAreLeftToTheWaker(t *testing.T) {
	const many = 1000
	r := &replica{shard: &Shard{waker: newWaker()}}
	all := make([]watch, many)
	for i := range all {
		all[i].watcher = newWatcher()
		r.watch(&all[i])
	}
	r.wake(1)
	r.wake(1)
	woken := func() (n int) {
		for i := range all {
			if all[i].watcher.woken() {
				n++
			}
		}
		return n
	}
	if n := woken(); n != 0 || len(r.shard.waker.queue) != 1 {
		t.Fatalf("%d of %d were woken at once, %d replicas are queued", n, many, len(r.shard.waker.queue))
	}
	for total := 0; total < many; {
		r.wakeSome()
		n := woken()
		if n == 0 || n > wakeTogether {
			t.Fatalf("%d were woken together, %d in all", n, total)
		}
		total += n
	}
	if r.wakeSome() {
		t.Error("there is no end")
	}
}

// However watchers come and go while bytes arrive, everybody is woken who waits for no
// more than has arrived since he began, or for what is no bytes; and nobody else is.
func TestWatchersProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &replica{shard: &Shard{waker: newWaker()}}
		type reader struct {
			watch
			missing int64
		}
		var all []*reader
		arrived := func(bytes int64) {
			r.wake(bytes)
			for _, w := range all {
				w.missing -= bytes
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				w := &reader{missing: rapid.Int64Range(1, 50).Draw(t, "missing")}
				w.watcher = newWatcher()
				w.watcher.arm(int(w.missing))
				r.watch(&w.watch)
				all = append(all, w)
			},
			"go": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "who")
				r.unwatch(&all[i].watch)
				all = append(all[:i], all[i+1:]...)
			},
			"grow":   func(t *rapid.T) { arrived(rapid.Int64Range(1, 20).Draw(t, "bytes")) },
			"change": func(*rapid.T) { arrived(anything) },
			"waker":  func(*rapid.T) { r.wakeSome() },
			"look": func(t *rapid.T) { // when the waker has come to the end
				for r.wakeSome() {
				}
				for i, w := range all {
					if woken := w.watcher.woken(); woken != (w.missing <= 0) {
						t.Fatalf("reader %d misses %d bytes, woken: %v", i, w.missing, woken)
					}
					w.missing = rapid.Int64Range(1, 50).Draw(t, "missing")
					w.watcher.arm(int(w.missing))
				}
				if r.watched() != len(all) {
					t.Fatalf("%d are counted, %d are there", r.watched(), len(all))
				}
			},
		})
	})
}
