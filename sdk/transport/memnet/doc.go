// Package memnet is the network in memory: package transport's contract kept in one
// process, with every fault that the contract lets a network have, on request, and some
// that it does not.
//
// It has two layers. A Machine is a network as a value: nodes, the links between them, and
// what is under way. Time is an argument and what it draws comes from a seed, so that one
// seed and the same calls are the same history; it is what simulations run on. A Network
// is a Machine that transports share, in the time of a clock: a provider of them, for
// tests of whatever talks to peers.
//
// The package owns what may happen between nodes, and where each message is. The Machine
// never waits, locks, starts a goroutine, reads a clock or logs. The Network starts no
// goroutine but a timer's, and that only while something is under way that takes time.
// Neither leaves the process, and neither proves anything: a secret is compared, not kept.
//
// # Running a Machine
//
// AddNode makes a place, Start begins a process there. Dial, Accept, Give (or Send),
// Receive and Close are what processes do; none waits. Whoever runs the Machine calls Due
// until it has no more to give, hands each Event to its node, moves the time to Next, and
// goes on. A message that has arrived counts against LinkBytesMax until it is received, so
// a node that does not call Receive holds its peer up.
//
// # Faults
//
// Each way between two nodes has its own (Faults): cut, held, slow, narrow, lossy, sloppy.
// A node can be paused, and die in two ways (Death). What is under way outlives who has
// sent it, and arrives also when newer links were made and used. Where the contract lets a
// network choose, the seed does: whether the end of a link overtakes what was sent before
// it, and how much of what a dead host had sent is lost.
//
// A Network can also let messages come in two pieces (NetworkOptions.RestChance), so that
// a Receive is given up in the middle of one.
//
// Room to send is the one thing that is more certain than in real networks: a sender knows
// at once that a message was received, also where the way back is cut.
//
// # Invariants, and where they are tested
//
//   - What arrives on a link is a beginning of what was sent on it, byte for byte, unless the
//     way is sloppy; one seed is one history; no direction of a link holds more than
//     LinkBytesMax beside one larger message, and all of it is counted; when faults end,
//     what is sent on new links arrives; when all nodes stop, nothing is left:
//     TestProperties, which checks them after every step of any course of events.
//   - A cut is of one way: TestCutsAreOneWay, TestOneWayCut.
//   - Messages of old links arrive after those of newer ones: TestOldLinksAreLate.
//   - Links to accept are bounded, and dials wait for a place: TestAcceptMax; for each lane
//     by itself: TestLanesAreAcceptedApart.
//   - An event allocates nothing but a message's own copy: TestEventsDoNotAllocate.
//   - The context of a Room ends with its link: TestRoomEndsWithItsLink. A Receive that is
//     given up in the middle of a message keeps its memory: TestReceiveInPieces.
//   - Endpoints that were chosen are used again, not at once: TestChosenEndpoints.
//   - A Network keeps the contract: package transporttest, whose tests run it. It leaves no
//     timer when its transports are closed: TestNetworkEnds.
package memnet
