// Command suites runs the test suites of others against clusters of brokerd, and compares
// test by test with what Apache Kafka 4.4 scored in the same suite:
//
//	go run ./test/suites franz-go           or kafka-go, kafka-go-alone, confluent-kafka-go, sarama, librdkafka, librdkafka-more
//	go run ./test/suites all                each in turn
//	go run ./test/suites -run RE kafka-go   some of its tests: only what failed is told
//	go run ./test/suites -brokerd PATH franz-go         this brokerd, rather than the checkout's
//	go run ./test/suites -against HOST:PORT,... franz-go   brokers that run already, Kafka's for one
//
// Each has three brokers, sarama five, and kafka-go-alone the one that some of kafka-go's
// tests insist on.
//
// It owns the getting of the suites (pinned, from the Go module proxy and npm), the
// settings of the brokers that each wants, relays and a stand-in for docker for the one
// that disturbs them, running them so that a test that hangs or
// kills its process costs only itself, Kafka's results (baselines/), and the lists of
// what is excused (excused/).
//
// A run passes when every test that passes on Kafka passes here, except those on the
// suite's list of excused ones, each with the capability that it waits for. A listed
// test that passes fails the run, and so does one that is not Kafka's: the list can
// only shrink. A test that passes on Kafka and did not run here at all, or was
// skipped, has not passed. Nothing is run a second time because it failed.
//
// The rules of the comparison are held by compare_test.go, those of what a dying
// process means by settle_test.go, the lists by excused_test.go.
//
// It never changes a suite, but for the addresses that some have written in.
// Everything that it makes lies under $BROKERD_CACHE/suites (default
// ~/.cache/brokerd): sources and builds, which are kept, and in run/NAME the results,
// the suite's output and the brokers', which the next run replaces.
package main
