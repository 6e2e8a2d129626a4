// Package broker puts a broker together: it is the only place that knows every
// part, and the only start and stop order.
//
// Start: the data directory is made and locked; the admin listener is bound, and
// whether the others can be is tried; the quorum's log is opened, from which the
// node's identity comes; the plugins of the stores are launched and open their
// stores for that identity; the replicas get the stores; the quorum runs, and its
// metadata reaches the replicas and the group coordinator; the listeners are bound; the
// broker registers with what it advertises; clients are served, and groups; it is
// ready. Where there is no log yet, an identity is proposed to the stores first, and
// the cluster is created with it when all of them have opened: one that belongs to a
// cluster refuses. Stop is the reverse, each step with a deadline: first groups, whose
// members may wait for minutes, then clients, last the plugins and the quorum's log, so
// that nothing acknowledged waits for a part that is gone.
//
// It owns that order, the lock of the data directory, the warnings that an
// operator should read, and the adapters between parts that don't know each
// other. It never handles a request or a record.
//
// Invariants: a broker that fails to start has stopped what it started
// (TestStartMistakes, with the check of goroutines in TestMain); two processes
// never hold one data directory (TestStartMistakes); a start that fails creates no
// cluster, and can be put right and repeated (TestStartMistakes, founding_test.go;
// over stores that belong to one, cmd/brokerd's start_test.go); after Run nothing is left,
// neither goroutine nor process (TestBroker); parts are stopped in reverse, and
// together within a minute (stages_test.go).
package broker
