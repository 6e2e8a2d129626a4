// Command records measures brokerd beside Apache Kafka and, with -nats, beside NATS
// JetStream: in turn, in one run. Run it from the top of the tree; -h prints its flags,
// -list its rows:
//
//	go run ./test/bench/records -nats
//
// With -brokers 3 each side is a cluster of three on this machine, whose topics have three
// replicas, of which two must be in sync; rows about one broker alone are not there:
//
//	go run ./test/bench/records -brokers 3 -rows produce,consume,sync
//
// What brokers send each other is plaintext on both sides then; -secret gives brokerd its
// default, mutual TLS.
//
// Kafka, which needs a JDK, and nats-server are installed by scripts/tools.
//
// It owns the rows, the order of their rounds and what is printed, and reports nothing of
// a round in which other processes used the processors. The servers are package peer's,
// what is sent is package load's.
//
// NATS has a side in the rows that it has something to compare with, and the report says
// which rows those are not. A partition is a stream there, and a record a message, each
// with an acknowledgement of its own. With -bare there is one side more, of command bare:
// a floor to compare with, in the rows sync, single and produce of the raw client.
package main
