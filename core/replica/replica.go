package replica

import (
	"sync/atomic"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// replica is one replica of this broker.
type replica struct {
	id    model.Partition
	topic string
	dirID model.DirectoryID
	dir   *Directory // dirID's; nil: it is not of this broker
	shard *Shard

	// view is what readers see; the shard publishes it.
	view atomic.Pointer[view]

	tail       tail
	fromMemory *counter // of dir and shard, nil without a dir

	appends pulse // to its log, for the health of its store

	watchers watchers // who waits for the view to change

	leader model.NodeID // that it follows, or NoNode; it belongs to Manager.Apply

	// The rest belongs to the shard.
	machine  *partition.Machine
	log      storage.LogOptions
	effects  partition.Effects
	dirty    bool
	epoch    model.LeaderEpoch // opening with it
	gen      partition.Generation
	arrived  int64 // bytes that the store took
	shown    int64 // of them, when the view's high watermark moved
	handle   storage.Handle
	life     int                // of the store that gave handle
	opens    int                // calls that are out; each may yet create the log
	refused  []recordbatch.Info // before there was a machine
	deleting bool
	// renewing: the log is being deleted, and another one opened then, if opensAnew.
	renewing, opensAnew bool
	closed              bool
	offline             bool // as last counted
	// unsure: the log has not been opened since its store was started again; held counts openings
	// that are held back; doubtful: as last counted.
	unsure, doubtful bool
	held             int
	upstream         *upstream // of the leader that it follows
	// subscribers follow it, where it leads.
	subscribers []*subscriber
	throttled   throttledReplicas // likewise
	// successor waits until the log is deleted.
	successor       *replica
	successorAssign *assignment
}

// view is a machine's view, and the handle through which it can be read.
type view struct {
	partition.View
	handle storage.Handle
}

// counter has a cache line of its own, since others are counted on other processors.
type counter struct {
	n atomic.Int64
	_ [56]byte
}

// logID names the replica's log in its store.
func (r *replica) logID() storage.LogID {
	return storage.LogID{Topic: r.id.Topic, Partition: r.id.Index}
}

// publish shows readers the machine as it is now. It returns how many bytes they may
// find that could not be read before, or more where there is something else for them
// to look at; 0: nothing.
func (r *replica) publish() (news int64) {
	old := r.view.Load()
	now := r.machine.View()
	if old != nil && old.View == now && old.handle == r.handle {
		return 0
	}
	r.view.Store(&view{View: now, handle: r.handle})
	if old == nil || old.Status != now.Status || old.handle != r.handle || old.LogStart != now.LogStart || old.Epoch != now.Epoch ||
		old.CutOff != now.CutOff {
		return anything
	}
	if old.HighWater == now.HighWater {
		return 0
	}
	// What the store took last may be above the high watermark: who wakes too early
	// looks once more than he needs.
	if news, r.shown = r.arrived-r.shown, r.arrived; news == 0 {
		return anything
	}
	return news
}
