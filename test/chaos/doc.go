// Chaos runs three real brokers, each a process with its own plugins, under load by
// franz-go, does to them what a seed decides, and holds what clients were told against what
// they can read.
//
//	go run ./test/chaos                                  a few events of each kind
//	go run ./test/chaos -events kill-leader,cut -count 50 -seed 7
//	go run ./test/chaos -count 20 -hurry 5               five events, one upon the other
//	go run ./test/chaos -growths 5                       one broker becomes three, under load
//	go run ./test/chaos -rolling 10                      ten rounds of restarts, under three clients
//	go run ./test/chaos -soak 1h                         full load, and processors that are busy
//	go run ./test/chaos -events none -power-cuts 50 -flush always
//	go run ./test/chaos -net wires                       where network namespaces may not be made
//
// It owns the lives of brokers' processes (nodes.go), the network between them, which it can cut in
// each direction (between.go): each broker in a network namespace, and a hub that drops
// packets (namespaces_linux.go), or, without root and only where asked for, a proxy
// (wires.go). It owns the load (load.go), the ledger that tells whether anything was lost,
// changed, doubled or left out (ledger.go), the history of each partition, whose windows
// porcupine checks (history.go, logmodel.go), the faults (events.go), those of which brokers
// have a main of the tests' own (altered.go, package altered), restarts under other clients
// (rolling.go, clients), an hour at full load (soak.go), disks that are slow, full, or fail
// (disks.go, package faultfs), and lose their power too (power.go), the growth of a cluster
// (growth.go) and the table that it prints. It never reaches into a broker: what it knows, a
// user can know.
//
// What must hold, whatever happens: an acknowledged record can be read at the offset that
// was told; what producers, consumers and those who ask for a log's end are told is as if one
// log had done it all, one thing after the other; an offset never changes its record; offsets
// have no holes; a record of an idempotent producer is there once, in the order of sending; no
// client sees an error; and when a fault ends, each partition acknowledges again, with all its
// replicas in sync, before a time. A loss of all power takes nothing with the flush policy
// always; with replicated it takes nothing below the offsets that the brokers name; with both,
// replicas are the same bytes again. The program ends with 1 where anything did not hold.
//
// Disks of faults need /dev/fuse and root. A machine without is to be told of by BROKERD_NO_FUSE,
// or what needs them fails.
//
// Only Linux: whose a connection is, and which process is a plugin, is read from /proc.
package main
