// Package cluster runs several brokers under one seeded, single-goroutine scheduler: on
// each the real machines, loops and managers of production, on a reference store and a
// network in memory, with clients that find leaders as Kafka's do. Processes are killed,
// hosts lose power, nodes pause, networks cut, delay and lose, one way or both, stores
// stall, fail and fill, clocks drift. A leader that has asked for another ISR may hear nothing of
// it (unheard.go), or what it asks comes late, to a controller that has changed the ISR meanwhile
// (overtaken.go). Who is alone in sync may lose its disk or its power, where the ELR has
// everything (counted.go). Who votes in the quorum may die in that, or with the one that it
// has voted for (ballots.go): of the quorum all is production's but the disk and the network, and
// what a node has said before it dies in a save may have left.
//
// Nodes form a cluster as in production: the first creates it, the others find it and join,
// and the quorum grows to three voters. More join later, some lose their disks, and some
// leave in order. Where one node begins, topics have more replicas to come, which the controller
// gives them as others join, while faults are on: in the end all have them (raises.go). In some runs voters leave too, others are lost for ever with their disks and
// replaced by new ones, and nodes come back that were forgotten (depart.go). A save of the
// quorum's disk is there when it has returned; a node may die inside one. Clocks drift; a jump of
// the wall clock moves the times that stores stamp.
//
// One seed is one run, the same every time; Raft draws from the one source of randomness of
// the process, so that a process runs one seed at a time. What is checked is in package
// check, which stands outside. TestClusterSeeds runs seeds of some seconds of faults, and has
// floors for what they must have met; core/sim/simulate runs long ones, in which rounds of
// faults alternate with moments in which all must serve. TestClusterMutations breaks the code,
// and expects the seeds to fail.
//
// What no broker can promise does not happen. Under the flush policy replicated, power is lost
// where some other replica that counts has all that was committed, or the only one has flushed
// it; a disk is lost where some other replica has it. In some runs stores fall back while their
// brokers live on, by the rule of power, once the brokers know their logs (fallback.go). All of
// that asks for a minimum ISR of two, by which the other goes on counting until the loss is
// noticed (spared.go). Where all lose power at once, what some replica lost is asked of nobody (blackout.go). A client of which no broker
// knows yet closes its connection with what has not arrived when it goes to another.
//
// Where events have to come in one order, a test tells a story (story_test.go): nothing happens
// but what it says. Outages that others met are such stories (fieldreports_test.go).
//
// It owns the nodes' lives, the faults and the clients. It never changes what it tests.
package cluster
