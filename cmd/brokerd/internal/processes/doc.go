// Package processes runs several brokers of one cluster as processes of this machine,
// children of the one that runs it, and does to them what is asked from elsewhere: kill,
// pause, resume, restart.
//
// It owns: what the brokers of a data directory keep from one start to the next (how many
// they are, where they listen to each other, the secret that they share), the processes,
// their lines on one console, and the socket by which others ask. It never reads a
// setting of a broker, and knows nothing of what one does: the caller says what each is
// started with.
//
// Invariants, tested in processes_test.go and state_test.go:
//
//   - A process is signalled by its handle, never by a number that somebody wrote down.
//   - No broker outlives the process that started it, however that ends.
//   - The first broker is started alone until it is known to have created the cluster, and
//     is never again told that it may.
//   - Two never run on one data directory; whoever may not read the directory can ask nothing.
package processes
