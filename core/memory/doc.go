// Package memory bounds how many bytes the broker's parts hold for the sake of
// others: requests, responses, cached batches (Budget), or for long: groups (Tally).
//
// A Budget owns a count and the order in which it is given out, never the bytes
// themselves: whoever acquires keeps within what was granted, and releases it.
//
// Invariants, and where they are tested: what is used is never more than the
// total (TestNeverAboveTotal); requests are granted first come, first served,
// so that a great one is not passed by for ever (TestFIFO); a waiter that gives
// up holds nothing and holds up nobody (TestCancel).
package memory
