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
// quorum.db keeps some hundred KiB of free pages in itself, so that on a full disk the
// broker starts and topics are deleted; what would use them up otherwise, new topics
// and partitions, is refused while there is no room for more.
//
// Invariants: nothing is answered before it is on disk and in Image; images are
// published in order, and each contains the one before; a database that is
// damaged, truncated or empty refuses to open, and is never taken for a new
// one; a new one appears whole or not at all; a single voter leads at once and
// never resigns. Tested in quorum_test.go, recovery_test.go, entry_test.go
// and reserve_test.go.
package quorum
