// Package load is the clients of a measurement: producers and consumers that cost as
// little as they can, since on a small machine they and the server share the
// processors. Requests are encoded before the time runs, each producer is a goroutine
// with a connection of its own, and of an answer only what must be known is read: its
// correlation, its error, its offsets. All of it goes through the protocol that any
// client speaks, in the versions of today's (topics by ID). The loads on NATS do the same
// to a nats-server, where a partition is a stream.
//
// It owns what is sent and what was counted, and fails on any error of a server, any
// answer that it does not understand, and any record that is missing from what it
// reads: a number of a broker that refuses is none. It never starts a server, and never
// compares.
package load
