// Package partition is one replica of one partition, as a machine: a value that
// is stepped with inputs and answers with effects. It has no goroutine, lock,
// channel or clock, and never sees the bytes of a record: an append is a batch
// header and an opaque RequestID.
//
// The machine owns: who leads and under which leader epoch, the in-sync
// replicas, the offsets (log start, high watermark, log end), the leader epoch
// cache, the state of idempotent producers, and which client waits for what. It
// never does I/O. Whoever hosts it performs its effects and brings the
// completions back as inputs.
//
// # What an answer promises
//
// acks 0 and 1 are answered after the store took the append; acks=all when the
// high watermark has passed it. The high watermark is the least log end among
// the in-sync replicas, and this replica's own log end counts only as far as its
// flush policy demands: with an ISR of one, or under FlushAlways, only what
// survives the loss of power of the machine.
//
// # Unknown outcomes
//
// Offsets are given when an append is submitted, and many appends may be under
// way. When one of them fails in a way that leaves its outcome open, or the
// store stops answering, the machine opens the log again. Opening fences, so
// that what the log then holds is settled: what landed is acknowledged, what did
// not is appended again, the same bytes at the same offsets. No offset is given
// to other bytes before that.
//
// # Invariants
//
//   - log start <= high watermark <= log end; the high watermark does not fall
//     under one leader epoch, unless the store has lost acknowledged records, and
//     then a notice of NoticeLost says which.
//   - Every Append input is answered exactly once and released exactly once.
//   - The state of a producer never counts a batch that was refused; a repeat of
//     one of its last five batches gets the first one's offset and is not appended.
//   - A log that holds bytes which this replica cannot have written takes it
//     offline; nothing is overwritten.
//
// They are tested by the stories in testdata/stories, by the properties in
// machine_property_test.go, and from outside by the simulator.
//
// Sources: KIP-98 and KIP-360 (idempotence), KIP-101, KIP-279 and KIP-320
// (leader epochs), KIP-966 (strict min ISR).
package partition
