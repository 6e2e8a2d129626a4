// Package memstore is the reference store: package storage's contract kept in
// memory, to the letter, in as few lines as it takes. Where the words of the
// contract leave a doubt, read what happens here.
//
// It has two layers. A Disk is what outlives a store: it holds the batches as
// they were written, how much of each log was flushed, and what is durable
// beside it. A Store is one opening of a Disk, and holds what a process would
// hold in memory: handles, queues, the highest leader epoch seen. Killing the
// Store leaves the Disk; losing power takes from the Disk what was not flushed.
//
// It is deterministic: it starts no goroutine, draws no random number but from
// a seed it is given, and reads the clock only through Options.Now. An append
// completes before Append returns, unless Options.Defer hands the steps of its
// work to a scheduler.
//
// Faults are asked for explicitly: Options.Before and After (and Faults, which
// implements both), Store.Kill, and the Disk's LosePower, Overwrite, Tear,
// FlipBit and SetCapacity.
//
// It never writes to a real disk and is no store for records that matter.
//
// Invariants, checked by package storagetest and this package's own tests:
// batches are whole and rise in offset; start <= end and durable <= end; what
// is below durable outlives LosePower; a completion comes once and in order.
package memstore
