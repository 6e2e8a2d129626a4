// Package vfs is the seam between the log store and its file system.
//
// It owns: the interface FS, its implementation on the operating system's
// files (OS), and one in memory (Mem) that forgets what was not synced, tears
// writes, runs out of room and fails on request. It never interprets what
// files hold.
//
// Invariants: errors carry the system's errno (errors.Is with syscall.ENOSPC
// and its like works on both implementations); Mem never keeps after a loss of
// power what no Sync or SyncDir made durable, except by chance, as real disks
// do. Both are held to the same table in vfs_test.go.
package vfs
