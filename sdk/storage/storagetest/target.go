package storagetest

import (
	"context"
	"errors"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Target is one way of reaching one kind of store: called directly, behind a
// lane, or as a process. Its methods may be called from several goroutines.
type Target interface {
	// Name is what reports call the target: "memstore", "storage-file over gRPC".
	Name() string
	// Abilities says what the target's backings can do besides opening. A case
	// that needs more is reported as not applicable.
	Abilities() Abilities
	// Fresh makes an empty backing, which shares nothing with any other.
	Fresh(ctx context.Context) (Backing, error)
}

// Abilities are what can be done to a backing, each by the method of Backing
// that is named beside it.
type Abilities struct {
	Kill      bool // Kill
	LosePower bool // LosePower
	Damage    bool // Overwrite and Tear
	Derived   bool // DamageDerived
	Fill      bool // SetFree
}

// Backing is what outlives a store: a directory, a bucket, a Disk in memory.
//
// A method that the target is not able to do returns ErrNotAble; the kit does
// not call it. Everything except Open and Remove is called from one goroutine.
type Backing interface {
	// Config is the configuration to open this backing with: its Settings, and
	// an identity and proposed directory ID, which the kit may change.
	Config() storage.Config
	// Open opens a store on the backing, as the provider's Open does. It really
	// opens one each time: with one open already, it is the second opener.
	Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error)
	// Kill ends every store that is open on the backing as kill -9 ends a
	// process: nothing is flushed or closed, no completion comes any more (those
	// in flight may be dropped, or fail with ErrGone or ErrUnknown), and later
	// calls fail. It returns when the backing can be opened again.
	Kill(ctx context.Context) error
	// LosePower is Kill, and the machine forgets what was not flushed, as seed
	// decides: all of it, some of it, or none.
	LosePower(ctx context.Context, seed uint64) error
	// Overwrite changes stored bytes of a log while no store is open: in the
	// stored copy of batch (the exact bytes of one batch), with replaces what
	// begins at byte at.
	Overwrite(ctx context.Context, id storage.LogID, batch []byte, at int, with []byte) error
	// Tear drops, while no store is open, all that is stored of a log after the
	// first keep bytes of batch.
	Tear(ctx context.Context, id storage.LogID, batch []byte, keep int) error
	// DamageDerived spoils, while no store is open, what the store can derive
	// from the logs: indexes, caches, summaries. How is decided by seed: removed,
	// cut short, or filled with garbage.
	DamageDerived(ctx context.Context, seed uint64) error
	// SetFree leaves room for about this many more bytes; negative lifts the
	// limit. It works with a store open.
	SetFree(ctx context.Context, bytes int64) error
	// Remove ends what is open and gives back what the backing holds.
	Remove(ctx context.Context) error
}

// ErrNotAble is returned by a method of Backing that the target lacks.
var ErrNotAble = errors.New("the target is not able to do this")
