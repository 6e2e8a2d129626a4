// Package e2e drives real processes with real clients: brokerd as a newcomer
// starts it, kcat, franz-go, librdkafka and Apache Kafka's own tools.
//
// It owns the harness that builds and starts a broker, the records that are
// sent (real ones, from package registries), and the clients' drivers. It never
// reaches into the broker: what it knows, a user can know.
//
// What the tests need is installed by scripts/tools. A client that cannot be
// had is a failure, not a skip.
//
// Environment:
//
//	BROKERD_E2E_FULL=1            the whole matrix, and 50 kills of each kind
//	BROKERD_E2E_BOOTSTRAP=ADDR    tests that need no restart use this broker
package e2e
