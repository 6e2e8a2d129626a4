// Package quorum keeps the cluster's metadata log and hosts the controller: it
// drives Raft, saves its log, votes and snapshots, replays what is committed
// into images, and runs the controller machine where this node leads.
//
// It owns <dir>/quorum.db, and needs no plugin for it: electing a controller
// must not depend on a plugin's health. It never decides about metadata
// (core/controller does) and never touches a record of a topic. The quorum has
// one voter in this release; its Raft identity is drawn from the random
// directory ID, never the node ID, so that a wiped node can never vote twice.
//
// A node is the body of a loop (core/loop). In production Run turns it. A simulator opens
// it with a Disk, Clock and Rand of its own and then, from one goroutine, calls
// Loop().Turn(now) whenever something was handed in or Loop().Deadline() has come, the
// first time at once. A turn is synchronous: it saves, replays, publishes, calls the
// listeners of OnImage, and the functions that were given to Start. When Ended says so, or
// to let the node crash, it is turned no more; Close follows, or, for a crash, nothing.
// Raft draws its election timeouts from crypto/rand, which testing/cryptotest fixes.
//
// quorum.db keeps some hundred KiB of free pages in itself, so that on a full disk the
// broker starts and topics are deleted; what would use them up otherwise, new topics
// and partitions, is refused while there is no room for more.
//
// Invariants: nothing is answered before it is on disk and in Image; images are
// published in order, and each contains the one before; a database that is
// damaged, truncated or empty refuses to open, and is never taken for a new
// one; a new one appears whole or not at all; a single voter leads at once and
// never resigns. Tested in quorum_test.go, recovery_test.go, entry_test.go,
// reserve_test.go and stepped_test.go.
package quorum
