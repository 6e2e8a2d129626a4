// Package logstore is a set of logs in a directory: package storage's contract
// on files.
//
// It owns: the directory's layout, the lock and identity, each log's segments,
// checkpoint, hint and blobs, the order in which files are written and synced,
// recovery, and the reserve that lets a full disk be emptied. It never looks
// inside records, and touches files only through vfs.
//
// # How a log works
//
// All that changes a log is an op in the log's queue. One goroutine of a pool
// (the runner) takes what is queued, writes consecutive appends with one
// system call, and runs other ops one by one; so nothing is locked while a file
// is touched. Readers work on a view, an immutable value that the runner
// publishes after each change, and hold segment files by a count, so that
// they wait for nobody. A second pool (the committer) syncs logs with appends
// that wait for that; what arrives while a log is synced shares its next sync.
//
// # What is lent
//
// A host may write the end of a log itself (a grant), and read whole batches from
// segment files (leases). What it has written it tells by an append without data,
// an op like others. The op that needs the end of the log for itself takes the
// grant back: what lies behind the last batch told of is adopted by an opening or a
// close, and otherwise cut.
//
// # Invariants
//
//   - Durable never exceeds what a successful sync covered, and never the LEO
//     (crash_test.go).
//   - The checkpoint says more than "clean" before the first append is written,
//     and "loose" before the first that is acknowledged without a sync
//     (crash_test.go).
//   - Completions of a log are called once, in the order of the appends, and
//     with no lock held (append_test.go).
//   - Bytes returned by a read, and headers by a scan, passed their CRC in this
//     life of the process. What no CRC covers was checked against the neighbours
//     and the epochs that were noted (damage_test.go).
//   - No bytes below the recovery point are ever cut (damage_test.go). It is on the disk
//     before an opening calls what is below it durable (later_test.go).
//   - Indexes are hints: whatever they hold, the log opens and is read right
//     (index_test.go).
//   - A batch that was written under a grant is in the log after the next opening,
//     whether it was told or not; what a failed write has left is not (grant_test.go,
//     crash_test.go).
//   - Zeros behind the last batch of the segment that grows are neither damage nor
//     loss; the checkpoint says that there may be some before they are written
//     (ahead_test.go, crash_test.go).
//   - Batches that were ever leased do not change in their file, and those that an
//     opening finds count as leased: a log that is cut below them goes on in a copy
//     (lease_test.go). So nothing at or behind the end of the log was ever leased in
//     the file that grows, and what is written there, or cut, is nobody's. The one
//     exception is an opening that cuts off damage on a full disk, since the alternative
//     is a log that does not open (room_test.go).
//   - A dropped segment is used again only when nothing of it was ever leased, nobody
//     can read it, and zeros are durably in place of all that it held
//     (recycle_test.go).
//   - A replacement is durable when it returns, and removes nothing before all
//     that takes its place is there (replace_test.go, crash_test.go).
//   - A call that finds no room leaves the log as it was: a truncation writes its copy
//     before it changes anything (fault_test.go, room_test.go).
//   - No opening fails for want of room for a copy (room_test.go).
//   - A segment, or a hint, that is not synced stays open; all else is open only
//     while it is used, or as long as there is room. Without a descriptor a call
//     does nothing and says so (descriptors_test.go).
//   - After a failed sync the log is used no more until it is opened again, and
//     what was not known to be on the disk is written again (fault_test.go).
package logstore
