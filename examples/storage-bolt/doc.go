// Command storage-bolt is a complete storage plugin: it keeps all logs of a
// broker in one file of bbolt (go.etcd.io/bbolt). It is an example, written to be
// read: docs/plugin-authors.md walks through it.
//
// It owns that file. It never looks inside records, and imports the sdk and
// libraries alone, as a plugin of anybody would.
//
// # How it works
//
// One goroutine writes, in the order in which it is asked. It takes all appends
// that wait, whichever logs they concern, and makes one transaction of them, so
// that they share one sync of the disk; when that is committed it tells everybody
// what became of their part. Everything else gets a transaction of its own.
// Readers use bbolt's read transactions and wait for nobody.
//
// What is in the file:
//
//	store                      identity, directory: whose store this is
//	logs
//	  <topic ID, partition>    one bucket for each log
//	    meta                   label, log start, LEO, bytes of batches
//	    batches                base offset -> when it was written, the batch
//	    blobs                  name -> the offset it describes, the data
//
// # Invariants
//
//   - What is answered is committed, and what is committed is on the disk: every
//     append survives the loss of power, and there is nothing to recover.
//   - An operation checks before it writes; one that fails leaves nothing in the
//     transaction that it shares with others.
//   - After a commit that failed, nothing is answered but ErrGone: what the disk
//     holds is known only after a restart.
//
// They are tested by the conformance kit, called directly and as a process
// (conformance_test.go), and in store_test.go.
//
// # What it is not
//
// It is not fast: opening a log reads the headers of all its batches, changes of
// a log wait for all that was asked before, and the file never shrinks. Damage to
// bbolt's own pages is bbolt's to find.
package main
