// Simulate runs many long simulations of clusters, seed after seed, in several processes,
// and keeps what each came to.
//
//	go run ./core/sim/simulate                              seeds 1 to 10,000, ten simulated minutes each
//	go run ./core/sim/simulate -to 50 -minutes 2 -for 5m    a piece of it, in five minutes at most
//	go run ./core/sim/simulate -nightly                     seeds that were not run before, until it is stopped
//	go run ./core/sim/simulate -seed 42 -v                  one seed again, event by event
//
// A file of results has a line for each seed that was run. What it has of the same program and
// length is not run again, so that a run that was stopped goes on. A seed in which too little
// happened does not count, and another is run in its place. A seed that fails is printed with
// the command that shows it again; fixed, it is kept in the tests of core/sim/cluster.
//
// It owns the processes (pool.go), the file (results.go) and what is printed. What a seed does,
// and what is wrong with it, is core/sim/cluster's. It goes on where it was stopped
// (TestGoesOnWhereItWasStopped), and no process that dies goes unnoticed (TestAProcessThatDies).
// The program ends with 1 where a seed has failed, and with 2 where it could not do what it was
// asked for.
package main
