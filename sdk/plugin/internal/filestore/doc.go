// Package filestore is a store that lends its files, for the tests of the lanes: a
// memstore, with one file for each log beside it that holds the same batches. It
// is as simple as a store with granted writes, leases and a recovery can be, and
// fails when it is asked to (Options).
//
// The files are the truth about batches: an opening takes from a file what memory
// lacks, which is everything in a new process, and what a host wrote without telling.
// All else (blobs, durability, the recovery point) is memory's, and ends with the
// process. It never syncs and is no store for records that matter.
//
// Invariant, which Open checks: a log's file holds the batches that memory holds,
// behind them maybe batches that were not told, and then nothing that is a batch.
package filestore
