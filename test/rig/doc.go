// Package rig starts brokerd for tests and benchmarks, as its users do: it finds what
// scripts/tools installs and builds programs (tools.go), says how one of several brokers is
// set up (member.go), starts processes and ends them, by their numbers alone (process.go),
// does so again and again on the same data (broker.go), waits until they answer (ready.go),
// and finds the processes that others have started (tree.go).
//
// It never reaches into a broker, picks no port (package ports does), and decides nothing
// about a test: whoever starts something ends it, and keeps or removes its directories. What
// a broker prints is added to a file beside its data, in all its lives, and is never removed
// here, so that a failure can show it.
//
// Invariants: a process that was started here is reaped, however it ends, and Done tells
// (TestProcess); one that ended is not waited for (TestReady); Kill and Stop return when the
// process is gone (TestBroker). Only Linux tells which processes others have started.
package rig
