// Package server owns the broker's client connections: it listens, cuts what
// arrives into requests, hands them to a wire.Handler in order, and sends the
// replies back in the order of the requests.
//
// It never looks inside a request beyond its header, knows no API's meaning but
// that a Fetch brings much data, and starts goroutines only inside Run.
//
// # One connection
//
// A reader cuts requests from what comes and begins them one after the other, also
// while earlier ones are being answered. Answers are asked for one after the other, in
// the order of the requests (wire.Turn), and what is ready is encoded and sent
// together. A request whose answer is ready when it is begun, with nothing before it,
// is answered by the reader itself, before it waits for more; all others by a worker.
// What needs no waiting is done by few workers, one connection after the other, so that a
// burst of many connections wakes few; there are as many more as there were, at once,
// answers that are waited for, or replies that clients or memory kept waiting.
//
// So a small request costs a read that brings it, one that finds nothing more, a write,
// and at most one wake-up; no goroutine, channel, timer or allocation of its own. What it
// needs meanwhile is lent from the server's pools: an idle connection has no buffer.
//
// Records are sent from where they are. Of those that lie in a file (model.Section) the
// kernel does it, without a copy, where it can: on Linux, from the files of most file
// systems, over a plain socket. Else they go through memory, copyBytes at a time. A file
// that turns out not to have them costs the connection, since a frame that was begun
// can't be ended; nothing is ever sent in their place.
//
// What is sent to clients of a listener on a loopback address is not paced, whatever the
// machine's congestion control does (unpaced).
//
// The reader stops, and with it the client, by the kernel's own backpressure, while
// MaxInFlight requests are not yet replied to, and while it sends replies itself.
//
// # Time
//
// No deadline is set for a request. A sweep looks at all connections, eight times in
// the shortest of the timeouts or at least once a second, and ends those that have been
// idle, or in the middle of a request or reply, for too long: never earlier than the
// configuration says, and up to two sweeps later. A write that lasts is interrupted at
// each sweep, to see whether it moves, and goes on.
//
// # Memory
//
// Whatever clients send or don't read, the server keeps within its budget:
//
//	total = MaxConnections x connectionBytes   each connection's own, taken when it opens
//	      + overdraft                          replies made, waiting for the shared part
//	      + shared                             all that doesn't fit the connection's own
//
// A connection's own part is for small requests and replies, so that they never wait
// for others: ownBytes for requests, and the buffers that small ones are read and sent
// with. A large request is given memory as its bytes arrive, in steps of four times
// what did, never what it announces; but where half of the shared part is free, tried
// connections are given all of it at once. A Fetch has memory for records
// before it reads them (wire.Call.Room): at most firstFetchBytes at first, and then
// twice what the one before took, so that only those who read what they are sent come
// to hold much. It is given less where there is less, and waits in line for one batch
// only, holding nothing meanwhile. A Fetch that has some and waits for more is answered
// when others wait for memory. Records in a file take none; where they must go through
// memory, their reply asks for copyBytes as it does for what is encoded of it, before
// any of it is sent. (Only the reply by which the server learns that the kernel can't
// send from a file asks later, does not wait, and costs its connection if there is
// none.) What keeps a file in use is then its client's time alone, WriteTimeout.
// Every other reply is encoded when there is memory for it; replies that don't fit the
// connection's own part are sent alone. Memory of requests that their handlers give back,
// and of whose frames nobody keeps a part, is used for others; the budget counts it
// while a request is in it.
//
// Half of the shared part is for tried connections alone: those that have moved as
// many bytes, in requests and replies that came through whole, as they ask for.
// However many newcomers send half of a request, or read no reply, clients at work
// don't notice. Newcomers wait behind newcomers.
//
// When the shared part is short, whoever needs some waits in line, and
// connections that hold some without moving on are closed, newcomers first: under
// pressure a connection has to move progressBytes in each StallTimeout, at other
// times in each FrameTimeout or WriteTimeout. If nothing stalls and the line stands
// still, requests that arrive in parallel block each other; then those that are
// furthest from their end are closed until the first in line can go on.
//
// # Invariants, and where they are tested
//
//   - Requests are begun in the order in which they came, and early; answers are asked
//     for, and replies leave, in that order, whenever they are ready
//     (TestRepliesKeepOrder); what is ready together is sent together
//     (TestRepliesOfABurst).
//   - Whatever comes, in whatever pieces, is cut into the same requests (FuzzFrame,
//     TestPieces).
//   - A frame's announced size costs nothing (TestSlowClientsStarveNobody,
//     FuzzFrame).
//   - Clients that trickle, or don't read, neither exceed the budget nor keep
//     others waiting (TestSlowClientsStarveNobody, TestDeafClientsStarveNobody).
//   - Requests that block each other, or Fetches that wait for records, keep
//     nobody waiting for long (TestParallelLargeRequests,
//     TestWaitingFetchesStarveNobody).
//   - What a Fetch reserved is held until its reply is sent, and no longer
//     (TestRoom); a reply of several parts arrives as a whole (TestBody), also when its
//     write is interrupted again and again (TestInterruptedWrites).
//   - So does one of which parts lie in files, by whatever way (TestSections,
//     TestSectionsOverTLS, TestSectionOfAnotherFileSystem), of a file that many read
//     (TestSectionsOfOneFile); it takes no memory of those that wait for it, or little
//     (TestDeafClientsOfSections, TestSectionsAreNoMemory), keeps its file no longer than
//     its client may take (TestDeafClientOfASection), and allocates nothing
//     (TestSectionAllocatesNothing). A file that does not have it, or can't be read, is
//     told of, and its bytes are the only ones that are sent (TestDamagedSection).
//   - Memory is used again when it was given back and nobody keeps it, and not before
//     (TestBodiesAreKept), and is counted by what it takes (TestRoomyBuffers).
//   - What is sent to clients of a loopback address waits for no timer
//     (TestLoopbackIsNotPaced).
//   - What the kernel takes of replies that nobody reads makes nobody a tried client, and
//     goes with the connection (TestSwallowedIsNotMoved, TestNothingIsLeftOfDeafClients).
//   - Nobody is closed before his time (TestWatch).
//   - A small request allocates nothing (TestRequestAllocatesNothing), and an idle
//     connection has one goroutine (TestIdleConnectionHasNoWorker, TestWorkers). A reply
//     that has to wait keeps no other waiting (TestWorkersAreShared,
//     TestDeafClientKeepsNobodyWaiting).
//   - The last reply before a close arrives (TestLastReplyIsNotLost).
//   - A panic in a handler costs its connection only (TestPanic); so does a Turn that is
//     called after its connection has ended (TestLateTurn).
//   - After Run nothing is left: goroutines, sockets, acquired memory (every test).
package server
