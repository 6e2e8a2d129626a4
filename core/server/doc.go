// Package server owns the broker's client connections: it listens, cuts what
// arrives into requests, hands them to a wire.Handler in order, and sends the
// replies back in the order of the requests.
//
// It never looks inside a request beyond its header, knows no API's meaning but
// that a Fetch brings much data, and starts goroutines only inside Run.
//
// # One connection
//
// A reader frames requests and begins them one after the other. Answers run side
// by side, one goroutine each. A writer waits for each in turn and sends it. The
// reader stops, and with it the client, by the kernel's own backpressure, while
// MaxInFlight requests are not yet replied to, while more than MaxUnsentBytes
// wait to be sent, and before a Fetch while another Fetch's reply is not sent.
//
// # Memory
//
// Whatever clients send or don't read, the server keeps within its budget:
//
//	total = MaxConnections x connectionBytes   each connection's own, taken when it opens
//	      + overdraft                          replies made, waiting for the shared part
//	      + shared                             all that doesn't fit the connection's own
//
// A small request or reply needs only its connection's own part, so that it never
// waits for others. A large request is given memory as its bytes arrive, in steps
// of four times what did, never what it announces. A Fetch has memory for records
// before it reads them (wire.Call.Room): at most firstFetchBytes at first, and then
// twice what the one before took, so that only those who read what they are sent come
// to hold much. It is given less where there is less, and waits in line for one batch
// only, holding nothing meanwhile. Records are sent from where they were read to. A
// Fetch that has some and waits for more is answered when others wait for memory.
// Every other reply is encoded when there is memory for it.
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
//   - Replies leave in the order of requests, whenever their answers come
//     (TestRepliesKeepOrder).
//   - A frame's announced size costs nothing (TestSlowClientsStarveNobody,
//     FuzzFrame).
//   - Clients that trickle, or don't read, neither exceed the budget nor keep
//     others waiting (TestSlowClientsStarveNobody, TestDeafClientsStarveNobody).
//   - Requests that block each other, or Fetches that wait for records, keep
//     nobody waiting for long (TestParallelLargeRequests,
//     TestWaitingFetchesStarveNobody).
//   - What a Fetch reserved is held until its reply is sent, and no longer
//     (TestRoom); a frame of several parts is what the codec makes of it as a whole
//     (TestSplice).
//   - The last reply before a close arrives (TestLastReplyIsNotLost).
//   - A panic in a handler costs its connection only (TestPanic).
//   - After Run nothing is left: goroutines, sockets, acquired memory (every test).
package server
