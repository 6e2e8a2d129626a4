// Package peer keeps this node's links to other nodes, over a transport, and carries what
// the owners of state here and there say to each other: the quorum's posts, questions and
// answers, and the streams of replication.
//
// It owns whom to dial and when, what a link is for, who is at its other end, which answer
// belongs to which question, and what waits for a link. It never reads what owners say,
// never decides that a node is dead (an Event is evidence, for whoever decides), and keeps
// nothing for a link that comes after the one on which it was lost.
//
// # Links
//
// To each node for which this one has something, it dials one control link, for posts and
// questions, and keeps it while it is used; one bulk link, of the data lane, for posts that
// are large; and one stream, of the data lane, while one is wanted. Answers go back on the
// link on which their question came. What a peer dials is accepted in the same way, so that
// between two nodes there may be two links of each kind, and neither waits for the other.
//
// A dial that fails is tried again after a pause that grows from 50 ms to 2 s, some of it
// drawn, so that not all nodes dial at one time; at once, where a link had stood, or the
// peer itself dials. When a control link ends that this node has not ended, it dials once
// to find out whether the peer is gone. Who answers must belong to this cluster, or
// to none while this node belongs to one, or the other way round, and must have proved what
// is demanded.
//
// A link that is silent is no evidence of anything. So what was written is proved to have
// arrived: PingAfter later a ping asks, and a link whose pong does not come within
// SilenceMax ends, and is dialled again. Of an idle link only the end of a stream pings that
// follows over it.
//
// # Driving a Machine
//
// A Machine is stepped with inputs, and appends to a list what it asks for. Links is the
// driver over a transport. A simulation drives it over a memnet.Machine on one goroutine:
//
//   - Do what is in the list one after the other, and let each Step append to the same list,
//     also those that doing it leads to, so that writes keep their order. Call Step with
//     Tick at Deadline.
//   - Dial: call Dial. A memnet Dialled event is a Dialled input, with what Peer tells; a Failed
//     event, or an error of Dial, is a Failed input.
//   - Write: call Send, and give Sent when it is taken. ErrFull: try again at the MaySend event;
//     keep the order of a link's writes. ErrClosed: nothing; the end of the link follows.
//   - CloseLink: call Close, then give Ended, or Failed where it was not made yet.
//   - At an Incoming event call Accept until there is none. Give each an even LinkID and an
//     Accepted input, and Receive until it is empty, since no event tells of that.
//   - At an Arrived or Ended event Receive until it is empty, giving each message as
//     Received. When Receive says ErrClosed, give Ended.
//   - The other effects are for the owners. A node that dies is dropped, machine and all,
//     without Stop.
//
// # Bounds
//
// Everything has one: the messages that wait for a link (the oldest posts are dropped, then
// questions are refused; a stream ends), the questions under way to a node, those of a peer
// that wait for their answer, the links that peers may have, the targets, the size of a
// message of each use, and the first message of a link, before it is known what it is for.
// Memory for what is received is asked for before it is (MessageBytesMax; Links has a budget,
// and a stream's owner gives its own).
//
// # Invariants, and where they are tested
//
//   - Each question is ended once, with the answer to it or an error, by its time; a message
//     is from the node that its link says; a stream's messages come in order, from its
//     beginning, between its up and its down, and each that was sent is settled once; memory
//     is bounded; when faults end, all is linked again within a bound; one seed is one history:
//     TestProperties, TestOneSeedIsOneHistory, over a network with every fault.
//   - Each rule of dialling and of ends by itself: stories_test.go; each bound, and what is
//     proof that a peer is there: bounds_test.go.
//   - Bytes of a peer cause an error at worst, and no allocation: FuzzMessage, TestStrangers.
//   - Links does as a driver should, and leaves nothing: links_test.go, and test/peers over
//     TCP.
package peer
