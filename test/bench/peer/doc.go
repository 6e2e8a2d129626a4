// Package peer starts the servers that a benchmark measures: brokerd built from this
// tree, and Apache Kafka from jars that scripts/tools installs. It owns their
// processes, directories and ports, and says what memory and processor time they took.
// It never sends them a request but the first.
package peer
