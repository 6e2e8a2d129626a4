// Package cluster runs several brokers under one seeded, single-goroutine scheduler: on
// each the real machines, loops and managers of production, on a reference store and a
// network in memory, with clients that find leaders as Kafka's do. Processes are killed,
// hosts lose power, nodes pause, networks cut, delay and lose, one way or both, stores
// stall, fail and fill, clocks drift.
//
// One seed is one run, the same every time. What is checked is in package check, which
// stands outside.
//
// It owns the nodes' lives, the faults and the clients. It never changes what it tests.
package cluster
