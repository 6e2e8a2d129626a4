package cluster

import "testing"

// TestLooksAtWhoWasTouched: a node that was not touched has nothing to do. Looking at the loops
// of all nodes after every event makes no other history.
func TestLooksAtWhoWasTouched(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		all := newCluster(seed, OptionsOf(seed))
		all.pumpAll = true
		want, err := all.run()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Run(seed, OptionsOf(seed))
		if err != nil || got.Trace != want.Trace || got.Events != want.Events {
			t.Errorf("seed %d: %v; %d events and trace %x, want %d and %x", seed, err, got.Events, got.Trace, want.Events, want.Trace)
		}
	}
}
