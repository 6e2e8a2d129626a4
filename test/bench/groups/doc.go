// Command groups measures consumer groups at scale on one broker: brokerd, with its log
// in the page cache and with an fsync before each acknowledgement, beside Apache Kafka,
// in one run. Run it from the top of the tree:
//
//	go run ./test/bench/groups
//
// It takes some minutes and needs a JDK; Kafka itself is installed by scripts/tools.
//
// It owns the members, which are connections of its own and consume nothing, the load of
// commits, and what is printed. It never starts a server by itself, which is package
// peer's, and never calls a figure good or bad.
package main
