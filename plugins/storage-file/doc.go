// Package storagefile keeps a broker's logs in files of a local directory. It
// is the plugin storage-file.
//
// It owns: the plugin's settings and their defaults, and the start and end of a
// store. The store itself is in internal/logstore, one segment of a log in
// internal/segment, the number of open files in the hands of
// internal/openfiles, small files in internal/sealed, and every access to a file
// goes through internal/vfs. It never looks inside records and never imports
// the broker's core. docs/storage-file-format.md draws what lies on the disk.
//
// What it promises is package storage's contract; it is held to it by the
// conformance kit, called directly (conformance_test.go) and as a process that
// is killed (binary_test.go), and to surviving a kill or a loss of power at
// every single change of the file system (internal/logstore, crash_test.go).
package storagefile
