// Package clients runs what people already have against three brokerds: the client
// libraries of Go, Java, Python and Node, Kafka's command-line tools and Kafka
// Streams, each through the same cases, and prints one table of what passed.
//
// It owns the harness (harness_test.go, broker_test.go, cluster_test.go), the protocol between it
// and the drivers (driver_test.go), the cases (cases_test.go, members_test.go,
// resume_test.go, relay_test.go), the table (table_test.go), the lists of clients
// (clients_*_test.go) and the drivers themselves (drivers, one folder for each
// language). It never reaches into the broker, and no driver decides whether a
// case passed: drivers tell what happened, franz-go inside the harness tells what
// the broker has, and the cases compare.
//
// Kafka's command-line tools have cases of their own (tools_*_test.go), which run each
// tool's main class, all in one JVM (toolbox_test.go), and check what it prints. So has
// Kafka Streams (streams_test.go).
//
// What is missing is installed by scripts/tools, pinned and outside of the tree. A
// client that cannot be had fails its cases. What a client does not have, by its own
// documentation, is "none" in the table, with the reason.
//
//	go test -v ./test/clients                                 the whole matrix
//	go test -v ./test/clients -run 'TestClients/sarama'       one client
//	go test -v ./test/clients -run TestTools                  Kafka's command-line tools
//	go test ./test/clients -args -brokers 1                   with one broker rather than three
//	go test ./test/clients -args -bootstrap 127.0.0.1:19092   against brokers that are there
//
// Topics have a replica on each broker. What is killed of several brokers is the one that
// a client needs: the others have to do. With -bootstrap, cases that kill brokers are "not
// run". Run against Apache
// Kafka it tells whether a failure is the broker's or the driver's.
//
// A client is added by a driver that does what is told below, its target in
// scripts/tools, and a line in the list of its language with what it lacks. Run it
// against Apache Kafka first.
//
// # Drivers
//
// A driver is a program: DRIVER... COMMAND key=value... bootstrap= is one host:port, or
// several with commas between them. It prints one JSON object a
// line on stdout and its log on stderr. It exits with 0, or otherwise with a last
// line on stderr that says why. A key that it does not know is an error.
//
//	version
//	    {"event":"version","version":"1.2.3"}
//	produce bootstrap= topic= codec=none|gzip|snappy|lz4|zstd count= from= idempotent=true|false timestamp=
//	    Sends records from ≤ i < from+count with acks=all: key k-<i>, value v-<i>-
//	    and 100 times the letter 'a'+i%26, headers n=<i> and empty=, timestamp
//	    (milliseconds) timestamp+i. Every third (i%3 == 0) goes to partition 0, others
//	    where the client's partitioner wants them. Once all are acknowledged:
//	    {"event":"produced","count":500}
//	consume bootstrap= topic= count=
//	    Without a group, all partitions from the start, until count records:
//	    {"event":"record","partition":0,"offset":0,"key":"k-0","value":"v-0-...","headers":[["n","0"],["empty",""]],"timestamp":123}
//	member bootstrap= topic= group= [instance=] [protocol=eager|cooperative]
//	    Joins the group, from the earliest where it has no commit; session timeout 6 s,
//	    heartbeat 1 s, rebalance timeout 10 s. After each change, all that it has:
//	    {"event":"assigned","partitions":[0,1]}
//	    Each record as above, and after each commit that was acknowledged:
//	    {"event":"committed","partition":0,"offset":10}
//	    A commit that a rebalance refused is repeated while it has the partition.
//	    When stdin ends it leaves the group and exits. It may be killed.
//	admin bootstrap= topic=
//	    Does what the client's admin part can, reads back each change, and prints for
//	    each call that did as it should:
//	    {"event":"admin","call":"create_topics"}
package clients
