// Package faultfs is a disk for programs that are to lose none of their data: a file system
// in FUSE (Linux, as root) that is slow, fails, has no room, or loses power when told to.
//
// It owns: the names and the attributes, in memory (tree.go); the contents, in files of a
// directory of another file system, each with what it needs to forget what was not synced
// (content.go); the faults (faults.go); the loss of power (power.go); and the operations of
// FUSE (serve.go). It never knows what files mean, and outlives no process: who ends
// loses the names.
//
// What holds:
//   - A loss of power keeps what was synced, and of the rest what chance kept: of the names
//     of a directory a prefix of the changes since its last fsync; of a file's bytes nothing,
//     all, a prefix with a torn end, or any of its sectors of 512 bytes. The name of a new
//     file that was synced is not there before its directory was, which is less than most
//     file systems promise. Several names of one file, and links, are refused; a rename
//     from one directory to another is lost in both, or in none.
//   - After a sync that was refused, what was to be synced is not brought back by a later one
//     that succeeds, as on Linux; only writing it again does.
//   - From Off on nothing changes, and every operation fails, also for processes that run on.
//   - What a fault touches is counted, so that a test can tell that it had one.
//   - flock, mmap, sendfile and leases of open files work as on any file system: pages are the
//     kernel's, and each write reaches this package before it returns.
//
// The tests are in disk_test.go. They need /dev/fuse and root; BROKERD_NO_FUSE says of a machine
// that it is known to have neither, and leaves them out.
package faultfs
