// Package quorum keeps the cluster's metadata log and hosts the controller: it
// drives Raft, saves its log, votes and snapshots, replays what is committed
// into images, and runs the controller machine where this node leads.
//
// It owns <dir>/quorum.db, and needs no plugin for it: electing a controller
// must not depend on a plugin's health. It never decides about metadata
// (core/controller does) and never touches a record of a topic.
//
// Every node that keeps the metadata is a member of one Raft group, as a voter or as a
// learner. Its name there is drawn from its directory ID, never the node ID, so that a
// wiped node can never vote twice: it comes back as another member. Members are in the
// metadata too (image.Member), and one entry of the log changes both. A node without a log
// asks the seeds (Finder), announces itself to who leads, is added as a learner, and gets
// its log by Raft; the leader makes voters of those that have caught up, by joint
// consensus, and never grows to two. A voter that is silent keeps its vote until its node
// comes with another directory, or somebody takes it: then one that follows votes in its place,
// by the same change. Commands on a node that does not lead are forwarded to the one that does,
// and answered once the image here has what the answer rests on.
//
// A node is the body of a loop (core/loop). In production Run turns it. A simulator opens
// it with a Disk, Peers, Clock and Rand of its own and then, from one goroutine, calls
// Loop().Turn(now) whenever something was handed in or Loop().Deadline() has come, the
// first time at once. What is handed in: commands by Start; what another node's Peers were
// given, by Receive (Post) and Question (Ask); Stop. Each of these only queues, so that it
// may be called within a turn. A turn is synchronous: it saves, calls Peers, replays,
// publishes, calls the listeners of OnImage, and the functions that were given to Start and
// Question. The done of an Ask may be called within it or later, and is handing in too. When
// Ended says so, or to let the node crash, it is turned no more; Close follows, or, for a
// crash, nothing. A Finder is turned alike, until it has a Verdict. Raft draws its election
// timeouts from crypto/rand, which testing/cryptotest fixes.
//
// quorum.db keeps some hundred KiB of free pages in itself, so that on a full disk the
// broker starts and topics are deleted; what would use them up otherwise, new topics
// and partitions, is refused while there is no room for more.
//
// Invariants: no message leaves before the term, vote and entries are on disk that it rests
// on; nobody forgets a change of the membership that it has applied; nothing is answered
// before it is committed and in Image; images are published in order, and each contains the
// one before; a leader that slept for an election timeout decides nothing, and answers no heartbeat,
// before a majority has taken an entry of its term (pause_test.go); a database that is damaged, truncated or empty refuses to open, and is never
// taken for a new one; a new one appears whole or not at all; a single voter leads at once
// and never resigns. Tested in cluster_test.go, stories_test.go, disk_test.go,
// quorum_test.go, recovery_test.go, entry_test.go, reserve_test.go, stepped_test.go and
// replacement_test.go.
package quorum
