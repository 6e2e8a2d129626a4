// Package partition is one replica of one partition, as a machine: a value that
// is stepped with inputs and answers with effects. It has no goroutine, lock,
// channel or clock, and never sees the bytes of a record: an append is a batch
// header and an opaque RequestID.
//
// The machine owns: who leads and under which leader epoch, the in-sync
// replicas, the offsets (log start, high watermark, log end), the leader epoch
// cache, the state of idempotent producers, which client waits for what, and where
// each follower is. It never does I/O, and sends nothing: whoever hosts it performs its
// effects and brings the completions back as inputs.
//
// # What an answer promises
//
// acks 0 and 1 are answered after the store took the append, or, while others may lead by now
// and this broker has not heard of it, as acks=all is; acks=all when the
// high watermark has passed it. The high watermark is the least log end among
// the in-sync replicas, and this replica's own log end counts only as far as its
// flush policy demands: with an ISR of one, or under FlushAlways, only what
// survives the loss of power of the machine.
//
// While others may lead by now, a leader that commits nothing for Limits.CommitMax sends all
// that wait to look who leads, and those that come, readers as well, until something is
// committed again. What of theirs has an offset stays in the log, so that a repeat of it is known here,
// or where it was copied to. A leader that commits goes on: that it may rests on epochs, and on
// no lease.
//
// # Leading several
//
// A follower subscribes, and by the leader epochs of both logs the leader says from where
// its own goes on there. What a follower acknowledges counts in its session, its leader
// epoch and its broker epoch; it joins the ISR by its word under the very partition epoch, or
// a later one, since a replica that is taken from its broker and given back has another log.
// The high watermark is the least over all that may be in sync
// by now: those of the committed ISR, and those of one that was asked for. It stays while
// the committed ISR is below its minimum. The ISR is changed by the controller alone, with
// one question under way; what it answers, or that it does not, is in isr.go. Before a
// leader asks to be the only one in sync, what was committed survives the loss of power
// there.
//
// # Following
//
// A follower copies the leader's batches as they are, and drops of its own only what the
// leader of its very epoch says is different. It keeps a leader's books meanwhile, so that
// one that comes to lead has nothing to read but what landed unheard.
//
// # Logs that are not whole
//
// What a replica has acknowledged in this life of its broker others count on. One whose log
// is found to end below that, since its store was started again without what it had not
// flushed, or with an older copy, says so when it subscribes: its leader has it left out of
// the ISR, and out of those that have everything. Told to lead before that, it asks for an ISR
// without itself, and another one leads; so does a leader whose own log goes back, and one that
// is offline. One in which a read has met damage counts as far as what lies below, and as leader
// has another one lead that is in sync. Where there is none, what can be read is served.
//
// # Unknown outcomes
//
// Offsets are given when an append is submitted, and many appends may be under
// way. When one of them fails in a way that leaves its outcome open, or the
// store stops answering, the machine opens the log again. Opening fences, so
// that what the log then holds is settled: what landed is acknowledged, what did
// not is appended again, the same bytes at the same offsets. No offset is given
// to other bytes before that. A follower takes what landed, and asks its leader for the
// rest. Followers are sent only what the store has acknowledged.
//
// # Invariants
//
//   - log start <= high watermark <= log end; the high watermark does not fall,
//     unless the store has lost acknowledged records, or a leader was elected that does
//     not have what was committed, and then a notice of NoticeLost says which.
//   - What was acknowledged with acks=all is in the log of every replica that can be
//     elected cleanly, and no offset below a high watermark ever has two values.
//   - Every Append input is answered exactly once and released exactly once; every
//     Replicate input is released exactly once.
//   - The state of a producer never counts a batch that was refused; a repeat of
//     one of its last five batches gets the first one's offset and is not appended.
//   - A replica that lacks what it has acknowledged does not lead before it has it again, or
//     the metadata counts on it no more.
//   - A log that holds bytes which this replica cannot have written takes it
//     offline; nothing is overwritten.
//
// They are tested by the stories in testdata/stories, by the properties in
// machine_property_test.go, by the seeded clusters of machines in
// machine_cluster_test.go, and from outside by the simulator.
//
// Sources: KIP-98 and KIP-360 (idempotence), KIP-101, KIP-279, KIP-320 and KIP-595
// (leader epochs), KIP-497, KIP-841 and KIP-903 (changes of the ISR), KIP-966 (strict
// min ISR), KIP-392 (reads from followers).
package partition
