// Package storage is the contract between a broker and the place where its
// partition logs live.
//
// A store holds a set of logs, one for each replica that the broker hosts. A
// log is an append-only sequence of record batches (Kafka's record batch v2,
// see package recordbatch), with a prefix that can be trimmed, a suffix that
// can be truncated, and a few small named blobs beside it.
//
// The comments of this package are the specification. A store written against
// them alone is correct; package storagetest checks that it is. They are
// written so that a store on local files, one on an object store and one that
// is itself a remote service can all keep them.
//
// The package owns: the interface, its values, and the error classes. It never
// opens a file, dials, or logs, and it needs the standard library (and package
// recordbatch, which does too) alone.
//
// # Terms
//
//   - LEO (log end offset): the offset that the next record will get.
//   - log start offset: the first offset that may be read. It only grows.
//   - leader epoch: the term of the leader that wrote a batch; it never falls
//     along a log.
//   - truncate: drop a suffix. Trim: drop a prefix.
//   - handle: one opening of one log. Opening a log again fences every earlier
//     handle of it.
//   - acknowledged: the store answered an append without error. What the append
//     then survives is in the answer.
//
// # Rules that hold for every method
//
//   - Concurrency: every method may be called from many goroutines. Calls on
//     different logs do not wait for each other longer than the store's own
//     shared resources demand.
//   - Cancelling a context stops the waiting, not the effect: a call whose
//     context ends has an unknown outcome, and its error matches ErrUnknown.
//   - Bytes passed in belong to the store until the call (or the completion of
//     an append) returns, and are not changed by it; bytes returned belong to
//     the caller for ever.
//   - Errors carry a class (see Error). A store never panics on bad arguments.
package storage
