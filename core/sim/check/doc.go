// Package check holds what a cluster of brokers did against what it promised. It stands
// outside: it is fed by what clients were told, what consumers read, the images that
// nodes publish, what each node says that it leads, and the logs as they are read at the
// end. It knows nothing of how a broker works, and changes nothing.
//
// # What is checked
//
//   - One value for each offset of a partition, for ever, for whoever reads it or was told
//     that it is committed (acks=all).
//   - What was acknowledged with acks=all is there after any sequence of clean elections,
//     with its value: no leader of a later epoch begins below it, and it is in every
//     in-sync log at the end.
//   - The high watermark does not go back within a leader epoch, and lies between the log
//     start and the log end.
//   - One leader at most in each leader epoch of a partition: of those that say so, those
//     that acknowledge, and those that the metadata names.
//   - ISR within the replicas, never empty, with the leader in it; ELR apart from it.
//     Leader epochs and partition epochs rise, and a new leader is a new epoch.
//   - Metadata is linear: the image at an offset is the same on every node, what a node
//     publishes in one life only goes forward, and a change that was acknowledged stays: a
//     topic that was made is there until somebody asks to remove it, and one that was
//     removed does not come again.
//   - Who is in the ISR or the ELR has all that was committed, as far as its log can be seen, at
//     any time.
//   - A member of the quorum votes for one candidate in a term, and a term has one leader, by
//     what they send.
//   - Logs of in-sync replicas are byte-identical below the high watermark.
//   - What an idempotent producer sent is there once, in order, without a gap.
//   - When faults end, everything serves: Unsettled says what does not.
//
// Each rule can fail: every test here has a history that breaks one rule and no other.
package check
