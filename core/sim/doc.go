// Package sim runs a broker's data path under a seeded, single-goroutine
// scheduler: the real machines, shards and manager of core/partition and
// core/replica, on the reference store, with clients that retry, networks that
// delay and lose, stores that fail, fill, stall, tear and die, and brokers that
// are killed.
//
// One seed is one run, the same every time. Nothing in it waits, sleeps or
// reads a real clock; whatever happens is an event of the world, in an order
// that the seed decides. The checker stands outside: it knows what clients were
// told and what they read, and nothing of the broker's insides.
//
// It owns the world, the workload, the faults and the checker. It never changes
// what it tests: there is no hook for it in production code but those that
// production uses too (replica.Executor, loop.Turn, loop.Clock).
//
// # What is checked
//
//   - A batch acknowledged with acks=all is there, at its offset, for ever
//     (until it is trimmed on request).
//   - An offset has one value for ever, for every reader.
//   - The records of an idempotent producer are there once each and in order,
//     without a gap.
//   - log start <= high watermark <= log end, and neither the log start nor the
//     high watermark goes back.
//   - When the faults end, every client is served.
//
// Mutations of the code under test prove that each rule can fail: they are in
// the tests.
package sim
