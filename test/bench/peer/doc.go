// Package peer starts the servers that a benchmark measures: brokerd built from this
// tree, Apache Kafka from jars and nats-server from a module that scripts/tools installs.
// It owns their processes, directories and ports, and says what memory and processor time
// they took. It never sends them a request but the first.
package peer
