// Package replica hosts the replicas of this broker: it steps their machines
// (core/partition), performs the effects on the stores, and is what the edge
// and the coordinators call (model.Partitions).
//
// A Shard owns the machines of some partitions and is the body of one
// loop.Loop; nothing else touches them. Readers see a machine through a view
// that the shard publishes as a whole, and read records from the store on their
// own goroutines, below the high watermark of that view. Calls that change a log
// are made by an Executor, and their completions come back to the shard as
// inputs. In production the executor runs them on goroutines that belong to
// Manager.Run; a simulator gives its own and decides when each runs.
//
// The package never decides what metadata says (the image does), never looks
// into records but to answer ListOffsets by time, and never deletes a log that
// it does not know to be deleted: logs that the metadata does not name are
// left alone and reported.
//
// # Replication
//
// A broker that follows dials the one that leads (Streams), says hello, and subscribes by
// partition. All that is said on a stream is core/replica/streamwire's. Messages are read,
// and batches checked by CRC, on the goroutine on which they arrive; what they have for the
// machines of one shard comes to it as one input. A shard sends at the end of its turn: as
// follower one message for each leader, with subscriptions, acknowledgements and credit; as
// leader the answers, and then batches of one partition after the other, from the tail in
// memory or else as they are read from the store, until the follower's credit is used up.
// Nobody is woken for one record, and nothing is copied for the network.
//
// Followers on which no high watermark rests have their turn one after the other (behind.go), as
// far as throttles (throttle.go) let them pass, and with little of theirs under way at a time.
//
// A follower lends its leaders Config.CopyBytes, each the same part. A message with batches
// counts until the store has let go of all of them. No broker sends more than is lent, but for
// one message that is larger, when nothing else of its stream is under way.
//
// # Order and ownership
//
// Appends of one partition reach the store in the order in which
// Manager.Append was called for it by one goroutine. The bytes given to
// Append belong to this package from then on, until the answer says that they are
// spent, or as long as it keeps their frame: an append whose client has been told that
// time is up may still be under way (TestBytesUnderWayAreNotSpent,
// TestBytesOfACallThatIsOutAreNotSpent).
//
// # Invariants
//
//   - What a client was told is visible: a view is published before the
//     answers that rest on it are given.
//   - Every Append is answered exactly once, also when the broker stops.
//   - Readers at the tail are served from memory (Config.TailBytes), with the
//     same bytes in the same limits as from the store.
//   - When a store's process has been started again, its idle logs are opened in the
//     background, a few at a time; a clean stop closes every log that its store can
//     open, and what it says of the others is one line for each store.
//   - A store that does nothing for Config.DirectoryTimeout is told of, used or not
//     (TestAStoreThatDoesNotServeIsOffline), and of one that hangs at a single log
//     (TestALogThatHangsIsNoStoreThatServes); not of one that is slow, and answers one append
//     after the other (TestAStoreThatIsBehindServes).
//   - A leader whose lease has run out acknowledges nothing that its followers do not
//     (TestNoLeaseNoWeakAcks), and has no client wait for followers that take nothing
//     (TestACutOffLeaderSendsClientsAway).
//   - At most Config.AppendBytes of unanswered appends are held; past that,
//     Append waits.
//   - What a leader has acknowledged with acks=all is in the log of every follower that is
//     in sync, at its offset (TestNothingAcknowledgedIsLost).
//   - A replica whose store fell back while the broker lived on, or in which a read has met
//     damage, is not in sync, and another one leads (TestAStoreThatFallsBackIsNotInSync,
//     TestADamagedLeaderHasAnotherOneLead).
//   - That a log may lack what others count on is kept for the broker's next life (Doubts) before
//     anything rests on it, until that is settled (TestAFallIsKeptUntilItIsSettled).
//   - Credit is never exceeded, and a peer that exceeds it, or says what cannot be read,
//     loses its stream and nothing else (TestASlowFollowerIsLeftOutAndComesBack,
//     TestWhatEndsAStream, FuzzMessages).
//   - Who is in sync, or may be, waits for no throttle (TestThrottledInSync), and who catches
//     up comes to the end (TestThrottlesLoseNothing), at no more than the rate
//     (TestThrottleRate, TestCatchUpIsThrottled).
//   - A batch that is damaged on its way is its partition's trouble alone
//     (TestADamagedBatchIsNotCopied).
//
// They are tested in this package against memstore, with stores killed and links cut under
// load, and by the simulator.
package replica
