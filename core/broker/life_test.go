package broker

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/quorum"
)

// begin begins a life as a start does, which has room to note it or has none.
func begin(t *testing.T, dir, boot string, flush config.FlushPolicy, full bool) *lives {
	t.Helper()
	l, err := beginLife(dir, boot, flush)
	if err != nil {
		t.Fatal(err)
	}
	if full {
		return l
	}
	if err := l.write(); err != nil {
		t.Fatal(err)
	}
	return l
}

// Logs may have lost their ends where the machine has started anew since a broker ran that
// was not stopped, until the cluster has heard of it.
func TestLossOfPowerIsKnown(t *testing.T) {
	const (
		kill = iota
		told // the cluster has heard of what was doubted; then killed
		fell // a log went back; then killed
		fellStop
		fellTold // and then the cluster has heard of what was doubted before
		settled  // and what it lacked counts no more
		stop
		full // killed, and there was no room to note that it ran
	)
	type part struct {
		boot  string
		flush config.FlushPolicy
		end   int
	}
	for _, c := range []struct {
		name  string
		lives []part // the first is the second start: nothing was there before the very first
		want  bool
	}{
		{"killed", []part{{"a", config.FlushReplicated, kill}, {"a", config.FlushReplicated, kill}}, false},
		{"power lost", []part{{"a", config.FlushReplicated, kill}, {"b", config.FlushReplicated, kill}}, true},
		{"power lost, flush by the clock", []part{{"a", config.FlushInterval, kill}, {"b", config.FlushInterval, kill}}, true},
		{"power lost, all was flushed", []part{{"a", config.FlushAlways, kill}, {"b", config.FlushAlways, kill}}, false},
		{"power lost, all is to be flushed from now on", []part{{"a", config.FlushReplicated, kill}, {"b", config.FlushAlways, kill}}, true},
		{"stopped, then started anew", []part{{"a", config.FlushReplicated, stop}, {"b", config.FlushReplicated, kill}}, false},
		{"stopped, started, power lost", []part{{"a", config.FlushReplicated, stop}, {"a", config.FlushReplicated, kill}, {"b", config.FlushReplicated, kill}}, true},
		{"killed again before the cluster heard", []part{{"a", config.FlushReplicated, kill}, {"b", config.FlushReplicated, kill}, {"b", config.FlushReplicated, kill}}, true},
		{"stopped before the cluster heard", []part{{"a", config.FlushReplicated, kill}, {"b", config.FlushReplicated, stop}, {"b", config.FlushReplicated, kill}}, true},
		{"killed after the cluster heard", []part{{"a", config.FlushReplicated, kill}, {"b", config.FlushReplicated, told}, {"b", config.FlushReplicated, kill}}, false},
		{"no room to note it", []part{{"a", config.FlushReplicated, stop}, {"a", config.FlushReplicated, full}, {"a", config.FlushReplicated, kill}}, true},
		{"a log went back", []part{{"a", config.FlushReplicated, kill}, {"a", config.FlushReplicated, fell}}, true},
		{"a log went back, all is flushed", []part{{"a", config.FlushAlways, kill}, {"a", config.FlushAlways, fell}}, true},
		{"a log went back, stopped", []part{{"a", config.FlushReplicated, kill}, {"a", config.FlushReplicated, fellStop}}, true},
		{"a log went back before the cluster heard of another doubt", []part{{"a", config.FlushReplicated, kill}, {"b", config.FlushReplicated, fellTold}}, true},
		{"a log went back, which the cluster knows", []part{{"a", config.FlushReplicated, kill}, {"a", config.FlushReplicated, settled}}, false},
		{"power lost, and a log went back, which the cluster knows", []part{{"a", config.FlushReplicated, kill}, {"b", config.FlushReplicated, settled}}, true},
		{"killed after the cluster heard that a log went back", []part{{"a", config.FlushReplicated, fell}, {"a", config.FlushReplicated, told}}, false},
		{"the system does not know", []part{{"", config.FlushReplicated, kill}, {"", config.FlushReplicated, kill}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			first := begin(t, dir, c.lives[0].boot, c.lives[0].flush, false)
			if !first.doubted() {
				t.Error("nothing is known of what was before, and it is not doubted")
			}
			if err := first.told(); err != nil {
				t.Fatal(err)
			}
			for _, p := range c.lives {
				l := begin(t, dir, p.boot, p.flush, p.end == full)
				var err error
				switch p.end {
				case told:
					err = l.told()
				case stop:
					err = l.stopped()
				case fell:
					err = l.Doubt()
				case fellStop:
					err = errors.Join(l.Doubt(), l.stopped())
				case fellTold:
					err = errors.Join(l.Doubt(), l.told())
				case settled:
					err = errors.Join(l.Doubt(), l.Settle())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			last := c.lives[len(c.lives)-1]
			b, err := os.ReadFile(filepath.Join(dir, lifeName))
			if err != nil {
				t.Fatal(err)
			}
			l := begin(t, dir, last.boot, last.flush, false)
			if l.doubted() != c.want {
				t.Errorf("it says %t, want %t; before, it was %s", l.doubted(), c.want, b)
			}
		})
	}
}

// A file that cannot be read as one says nothing.
func TestDamagedLife(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, lifeName), []byte(`{"boot_id":"a","sto`), 0o600); err != nil {
		t.Fatal(err)
	}
	if l := begin(t, dir, "a", config.FlushReplicated, false); !l.doubted() {
		t.Error("it is not doubted")
	}
}

// What is doubted is in the registration, and is doubted no more when the broker serves; a
// broker that stops says so.
func TestDoubtIsRegistered(t *testing.T) {
	dir := t.TempDir()
	b := start(t, settings(t, dir))
	if b.life.doubted() {
		t.Error("it serves, and is still doubted")
	}
	want := slices.Clone(b.now.Load().directories)
	for _, doubted := range []bool{true, false} {
		b.life.unheard = doubted
		r, err := b.registration(quorum.Identity{ClusterID: "c", NodeID: 1}, [16]byte{1}, b.now.Load().stores, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !doubted {
			want = []model.DirectoryID{}
		}
		if !slices.Equal(r.MayHaveLost, want) {
			t.Errorf("doubted %t: %v is registered, want %v", doubted, r.MayHaveLost, want)
		}
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	l, err := beginLife(dir, "another", config.FlushReplicated)
	if err != nil {
		t.Fatal(err)
	}
	if l.doubted() {
		t.Error("it was stopped, and is doubted")
	}
}
