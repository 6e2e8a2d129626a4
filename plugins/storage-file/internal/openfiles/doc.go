// Package openfiles keeps the number of a process's open files in bounds.
//
// It owns: which of the files that it was given are open, and the order in
// which those that nobody uses are closed. It never reads or writes them, and
// never decides what is synced. A file with bytes that were not synced must be
// kept pinned by who wrote them: the system tells a failed write to those who
// have the file open.
//
// # Invariants
//
//   - A pinned file stays open, also when it is removed or another takes its
//     name. (openfiles_test.go)
//   - A file that was retired is never opened again, so that its name may be
//     given to another. (openfiles_test.go)
//   - Files beyond the bound are open only as long as they are pinned.
//     (openfiles_test.go)
package openfiles
