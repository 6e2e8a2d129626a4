// Command bare is the least that a Go program can do for a produce request, with one
// goroutine for each connection: it reads a frame, checks the CRC of the batch in it,
// writes the batch behind the others in the partition's file with one system call, and
// answers with a response that was made before, in the same goroutine. It is a floor to
// compare a broker with (see test/bench/records), and no broker: it keeps one copy and no
// offsets but a counter, bounds no memory but that of a request, asks nobody who they are,
// and knows nothing of its files when it starts again.
//
// It understands what package load's own producers and package rpc ask around them, in the
// versions in which they do, and ends a connection that sends anything else. No request
// makes it panic, or take memory by a size that it claims: the tests say so.
package main
