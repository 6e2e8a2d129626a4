// Command brokerd is a message broker that speaks the Kafka protocol, and the
// tools to work with it and any other cluster that does.
//
// It owns what a person sees: commands, flags, tables, sentences, exit codes. It
// never decides anything of a cluster: the broker is core/broker, and the tools
// are clients as any other. Every command has an example, and what they print is
// tested in process (broker_test.go, cli_test.go).
package main
