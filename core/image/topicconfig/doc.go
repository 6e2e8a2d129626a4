// Package topicconfig is the table of topic settings: Kafka's names, types,
// defaults and ranges, the broker properties that stand in for them, and the
// one resolution of all that into typed values. Beside it is the table of those
// settings of brokers alone that are changed while they run (broker.go).
//
// It is pure and needs the standard library alone. It never decides what a
// setting does: each owner reads its field of Config.
//
// Invariants: every setting of Kafka 4's topics is in the table, so that tools
// may set and show them all; a setting without effect yet says so in its
// documentation; every default is inside its own range; Validate accepts exactly
// what Resolve accepts. Tested in topicconfig_test.go.
package topicconfig
