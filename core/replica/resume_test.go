package replica

import (
	"slices"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
)

// TestWhoNeedsNoReadKeepsNobodyFromHis: one that waited for others' reads, and for which the
// log was trimmed meanwhile, has nothing to read when its turn comes.
func TestWhoNeedsNoReadKeepsNobodyFromHis(t *testing.T) {
	p := newPeered(t)
	p.say(leadsOver, append(slices.Clone(hello), asks(5)...))
	r := (*p.m.replicas.Load())[part(0)]
	waits := r.subscriberOf(2)
	f := waits.feed
	needsNone := *waits
	needsNone.next = 1
	needsNone.held, waits.held = true, true
	f.held, f.reads = []*subscriber{&needsNone, waits}, readsMax
	a := makeBatch(t, batch.Options{}, "a")
	a.Partition, a.Acks = part(0), model.AcksLeader
	p.m.Append(t.Context(), a, func(model.Appended) {})
	p.settle()
	if !waits.held || waits.piecesOut > 0 {
		t.Fatal("it does not wait for a read")
	}
	f.reads--
	r.shard.resume(f)
	p.settle()
	if waits.held || len(f.held) > 0 {
		t.Fatal("it waits, though nobody reads")
	}
}
