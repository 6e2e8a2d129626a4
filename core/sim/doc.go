// Package sim runs a broker's data path under a seeded, single-goroutine
// scheduler: the real machines, shards and manager of core/partition and
// core/replica, on the reference store, with clients that retry, networks that
// delay and lose, stores that fail, fill, stall, tear and die, and brokers that
// are killed. In runs of their own there are groups of consumers too: the real
// machines and manager of core/group and core/coordinator on those replicas, with
// members that stall, vanish, leave and come back, under their old names too, and
// offsets partitions whose leadership goes and returns. In every second run the store
// lends the ends of logs (granted.go): what is appended is answered before the store
// is told, and its process, the broker, or both die in between.
//
// One seed is one run, the same every time. Nothing in it waits, sleeps or
// reads a real clock; whatever happens is an event of the world, in an order
// that the seed decides. The checker stands outside: it knows what clients were
// told and what they read, and nothing of the broker's insides.
//
// It owns the world, the workload, the faults and the checker. It never changes
// what it tests: there is no hook for it in production code but those that
// production uses too (replica.Executor, coordinator.Executor, loop.Turn,
// loop.Clock).
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
// And of groups, by what they told at the broker's door (ledger.go, settle.go):
//   - A committed offset that was acknowledged, or shown once, is in force until a
//     commit or a removal that reached the broker later is; nobody is shown another,
//     across all crashes. It expires only where no member needs it.
//   - What was refused never comes into force; nor does anything of a member whose
//     generation is over, or whose place another has taken.
//   - Generations rise. A member is told the assignment that was made for it in that
//     very generation, and no partition is given to two members in one.
//   - Every request is answered, once.
//   - When the faults end, each group comes to have all running members in one
//     generation, which commit; it stays like that while nothing happens, and across a
//     restart.
//
// Mutations of the code under test prove that each rule can fail: they are in
// the tests.
package sim
