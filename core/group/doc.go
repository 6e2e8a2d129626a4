// Package group is the coordinator of the consumer groups of one partition of
// __consumer_offsets, as a machine: a value that is stepped with inputs and answers
// with effects. It has no goroutine, lock, channel or clock.
//
// The machine owns: the groups of its partition with their members, generations,
// assignments and committed offsets; who waits for what; and the deadlines of all of
// them, in one heap, of which the host is asked to keep the earliest. It speaks the
// classic protocol: members that join, a leader that assigns. It never does I/O, never
// assigns partitions, and reads nothing of what clients send each other but the topics
// that consumers subscribe to.
//
// # What is durable
//
// The state is what is in the log, in Kafka's own schemas: committed offsets, and each
// group as it was when its last assignment was stored, when a static member got another
// ID, or when it became empty. Writes are applied in the order of asking. A commit is
// shown and acknowledged, and an assignment given out, when its write is durable; a write
// that is refused changes nothing. Where that takes longer than Settings.CommitTimeout
// clients are told to come again, while the write goes on. Who fetches what is being
// committed waits as long as the one who commits: clients that do not await the answer
// to a commit find it.
//
// Members in a rebalance, and those that were given an ID and have not joined, are in
// memory alone. A machine that loads the log goes on with each group's last written
// generation as Stable, gives its members a session from then on, and lets them find out
// by their next request whether the group had gone on.
//
// # Time
//
// Sessions and all other deadlines are measured by the monotonic clock. The age of
// offsets is told by the wall clock, whose leaps do not count; see calendar.
//
// # Bounds
//
// A group has at most Settings.SizeMax members, and as many that were given an ID and
// may still join, each for one session. Groups that are neither in the log nor have
// anybody vanish at once. While too many writes are under way nothing is added to them but
// the removal of deleted topics: commits, assignments, deletions and static members that
// come back are refused, what has expired and groups that become empty wait.
// What is kept of a request is what the log would keep.
//
// All that is kept is counted in Memory, which the machines of a broker share. What would
// add to it and does not fit is refused with COORDINATOR_NOT_AVAILABLE, after which
// clients come back when they have waited: a join, assignments, a commit. Whatever adds
// nothing goes on, so that members stay and commit, and everything can be deleted; the
// last of the memory is for members. What is loaded is counted and never refused. A
// subscription for which there is no memory is one that cannot be read.
//
// # Invariants
//
//   - Every request is answered exactly once: at the latest when a deadline of its
//     group, or the time for its write, is over.
//   - An acknowledged commit is there after any number of reloads, until a later one, or
//     a removal; nothing is shown that is not in the log. Offsets never go back by
//     themselves.
//   - The generation of a group rises with each rebalance. Requests of another one are
//     refused, and an assignment goes only to members of the generation it is for.
//   - An instance ID has one member at most; who used it before is fenced. Where the log
//     may lack its last member ID, which was given in a rebalance that the coordinator did
//     not outlive, whoever uses another than the log's is told to join anew.
//   - What a group that is Stable or Empty is, is what it would be loaded as.
//   - Nothing expires that a member reads or that a rebalance may give to one.
//   - What is counted is what is kept, and nothing after Resign (checkMemory, after each
//     step of all properties; what things take: TestWhatIsKeptIsWhatIsCounted).
//
// They are tested by the stories in testdata/stories, one or more for each rule, by the
// properties in machine_property_test.go, and from outside by the simulator.
//
// # Where it differs from Kafka's coordinator
//
// A new group is not written down before it has a generation. A static member that comes
// back to a full group is let in; one that comes back subscribed to other topics makes
// the group rebalance. An offset that was committed after its group became empty is kept
// for its retention from then. A request that its own repeat has overtaken is answered,
// with REBALANCE_IN_PROGRESS. Who was given an ID and leaves before joining makes nobody
// rebalance. A static member's ID that was lost with the coordinator is UNKNOWN_MEMBER_ID,
// not FENCED_INSTANCE_ID, with which a consumer ends. An error of the log that has no other
// meaning to clients is COORDINATOR_NOT_AVAILABLE, never UNKNOWN_SERVER_ERROR.
//
// Sources: KIP-62 (sessions and rebalances), KIP-134 (the initial delay), KIP-211
// (expiry), KIP-345 (static members), KIP-389 (group.max.size), KIP-394
// (MEMBER_ID_REQUIRED), KIP-429 (commits while others join), KIP-496 (deleting offsets),
// KIP-814 (static leaders).
package group
