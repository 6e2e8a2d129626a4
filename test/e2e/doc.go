// Package e2e drives real processes with real clients: brokerd as a newcomer
// starts it, kcat, franz-go, librdkafka and Apache Kafka's own tools.
//
// It owns the brokers of its tests, which package rig starts: one (broker_test.go) and
// several (brokers_test.go); what waits and asks (harness_test.go), the records that are sent,
// real ones from package registries (data_test.go), the clients' drivers
// (clients_test.go, load_test.go), the members of groups and what is held against them
// (members_test.go), records that prove themselves (proof_test.go), disks that break
// (disks_test.go), and the stories: round trips of records, kills and restarts under load
// and under groups, kills and changes while the broker itself writes and reads what its
// store has lent, hostile clients, a reassignment under a throttle (throttle_test.go), and
// outages that others met (the files whose names end in fieldreports_test.go). It never
// reaches into the broker: what it knows, a user can know.
//
// What the tests need is installed by scripts/tools. A client that cannot be
// had is a failure, not a skip. Tests of disks mount file systems and need
// root for that. No test leaves a process behind, however it ends. Tests that mostly wait
// run beside each other, behind those that measure time or memory.
//
// Environment:
//
//	BROKERD_E2E_FULL=1            the whole matrix, 50 kills of each kind, and 200 of
//	                              plugins that have lent files
//	BROKERD_E2E_KILLS=N           so many kills of each kind
//	BROKERD_E2E_CARRIER=NAME      brokers' stores go by socket or grpc; auto if it is not set
//	BROKERD_E2E_BOOTSTRAP=ADDR    TestRoundTrip uses this broker, and restarts none
package e2e
