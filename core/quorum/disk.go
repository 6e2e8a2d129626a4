package quorum

import (
	"go.etcd.io/raft/v3/raftpb"
)

// Disk keeps what a node must not forget. In production it is quorum.db in Config.Dir; a
// simulation has its own. One goroutine uses it, and nothing of it is called after an error
// of Save or Close but Close: what that call was to write may then be there or not.
type Disk interface {
	// Load opens the disk and gives what is durable; nil where nothing was ever created.
	// An error says what to do, and wraps ErrInUse, ErrForeign or ErrDamaged where they apply.
	Load() (*Stored, error)
	// Create makes the first state durable, whole or not at all, where there is none. Load
	// comes next.
	Create(first *Stored) error
	// Save makes a change durable, whole or not at all, before it returns. It keeps nothing
	// of it, and changes nothing.
	Save(Change) error
	// Room sees to it that the disk takes what little a start needs, and returns why it
	// does not. It costs nothing where there is room.
	Room() error
	// Close saves nothing. The disk can be opened again.
	Close() error
}

// Stored is what is durable.
type Stored struct {
	Identity Identity
	// Hard is the term, the vote in it, and a commit index, which may be behind.
	Hard *raftpb.HardState
	// Snapshot is nil before the first: a member that joins has none.
	Snapshot *raftpb.Snapshot
	// Entries follow the snapshot without a gap.
	Entries []*raftpb.Entry
}

// Change is what becomes durable together.
type Change struct {
	Hard *raftpb.HardState
	// Snapshot takes the place of the one before, and of the entries up to its index; with
	// Reset of all entries, since it came from a leader. Nil: it stays.
	Snapshot *raftpb.Snapshot
	Reset    bool
	// Entries take the place of all from the first one's index on.
	Entries []*raftpb.Entry
}
