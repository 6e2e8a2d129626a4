// Package transport is the contract between a broker and the network to its peers.
//
// A transport carries messages between the brokers of a cluster, over links. A link joins
// two brokers, for one lane, and carries messages both ways. What messages say is the
// broker's affair: its quorum, its heartbeats and its replicas all send them, and nothing
// goes from broker to broker beside them.
//
// The comments of this package are the specification. A transport written against them
// alone is correct; package transporttest checks that it is. They are written so that one
// on TCP, one on a message system such as NATS and one in memory can all keep them.
//
// The package owns: the interface, its values, and the error classes. It never dials,
// listens or logs, and it needs the standard library alone.
//
// # Terms
//
//   - node: a member of the cluster: a broker, a controller, or both.
//   - endpoint: where a node is dialled, in words that only its transport understands.
//   - link: what joins two nodes, for one lane, from its dialling until its end.
//   - lane: what a link is for. Lanes never wait for each other.
//   - peer: the node at the other end of a link.
//
// # What a link promises
//
// What arrives on a link is a beginning of what was sent on it: messages arrive whole,
// unchanged, in the order in which they were sent, once each, and after one that was lost
// none arrives. That is all:
//
//   - A message that was sent may never arrive, and its sender may never be told. That Send
//     has returned says only that the transport has taken the message.
//   - It may arrive late, however late: after its sender has closed the link, given the peer
//     up, dialled it again, or died. Messages of two links overtake each other, in whatever
//     order the links were dialled.
//   - So what is sent again, over another link, may arrive twice.
//   - Nor does it tell that its sender lives: it may have waited behind all that a link
//     holds. Whoever has to know asks, and counts from when it asked.
//
// A broker counts on no more. Its messages carry the epochs and offsets by which one that
// is late, or comes again, is known for what it is.
//
// # How a link ends
//
// Either end closes it, or its network does, or the death of either process. Then each end
// finds it ended: Receive gives what has arrived, and then ErrClosed; Send gives ErrClosed.
// Where the transport says so (Capabilities.Resets), the end of a process ends its links
// at its peers within 50 ms, also when the process is killed; a plugin therefore keeps
// nothing of its broker's links open when its broker is gone. Elsewhere, and where the
// network is cut, a link may be silent for ever: a broker sets its own times. A link that
// has ended stays so; what goes on is another one.
//
// # Rules that hold everywhere
//
//   - Memory: a transport holds no more than LinkBytesMax of messages for each direction of
//     a link, at both of its ends together, beside one message that is larger. Who sends more
//     than is received waits in Send. Nothing is allocated because a peer says that it will
//     send it: memory for a message is asked for (Room) before it is received, and what is
//     not yet authenticated is held within 64 KiB.
//   - Lanes: a link whose messages nobody receives holds up no other link.
//   - Idleness: a link on which nothing is sent costs next to no processor time, and is as
//     good as new, however long it was idle.
//   - Concurrency: every method may be called from many goroutines, but for Receive, which
//     one at a time calls on each link.
//   - Contexts: a call whose context ends returns soon, with an error that is the
//     context's (context.Cause).
//   - Errors carry a class (see Error). A transport never panics, whatever its caller or
//     a peer does; whatever strangers send to it costs neither a peer's link nor its memory.
package transport
