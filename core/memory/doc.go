// Package memory bounds how many bytes the broker's parts hold for the sake of
// others: requests, responses, cached batches (Budget), or for long: groups (Tally).
// And it lends the bytes that are needed for a moment, again and again (Buffers), bounds
// what waits to be collected in a process (Pace), says when it has come to rest (Rest), and
// lets go of what it does not need of its program then (ForgetProgram).
//
// A Budget owns a count and the order in which it is given out, never the bytes
// themselves: whoever acquires keeps within what was granted, and releases it. Buffers
// count what they hold idle, and not what is borrowed.
//
// Invariants, and where they are tested: what is used is never more than the total
// (TestNeverAboveTotal); requests are granted first come, first served, so that a great
// one is not passed by for ever (TestFIFO); a waiter that gives up holds nothing and
// holds up nobody (TestCancel); a buffer takes little more than what was asked for, or as
// it says itself, and is with one borrower at a time (TestBufferSizes, TestRoomyBuffers,
// TestBuffersAreLentOnce); idle ones are no more than the limit, and go when they are not
// needed (TestBuffersKeepNoMoreThanTheirLimit, TestBuffersAreTrimmed); garbage is no more
// than was said (TestPace); a process comes to rest once after each burst of work
// (TestRestComesAfterWork); no page of a program is lost that was changed
// (TestUnchangedMappings).
package memory
