// Package broker puts a broker together: it is the only place that knows every
// part, and the only start and stop order.
//
// Start: the data directory is made and locked; the admin listener is bound, and
// whether the others can be is tried; the quorum's log is opened, from which the
// node's identity comes; the plugins of the stores are launched and open their
// stores for that identity; the transport is opened, if there is to be one, and links
// to other brokers are kept; the replicas get the stores and the links; the quorum runs,
// and its metadata reaches the replicas and the group coordinator; the listeners are bound;
// the broker registers with what it advertises, and is unfenced; clients are served, and
// groups; it is ready. Where there is no log yet, the seeds are asked for a cluster; its
// identity, or one that is proposed, is taken to the stores first, and the cluster is
// joined or created when all of them have opened: one that belongs to another
// refuses. Stop is the reverse, each step with a deadline: first other brokers lead what
// this one has led, then groups end, whose members may wait for minutes, then clients, last
// the links, the plugins and the quorum's log, so that nothing acknowledged waits for a part
// that is gone.
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
// neither goroutine nor process (TestBroker); a node that is wiped, or told that it may
// create a cluster while others do, makes no second one (cluster_test.go); parts are stopped in reverse, and
// together within a minute (stages_test.go).
package broker
