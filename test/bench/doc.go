// Package bench is where brokerd is measured beside Apache Kafka, and NATS where that is
// asked for: in one run, on one machine, in turn, so that what is compared has met the
// same neighbours. Each program below it is one command, and prints how to repeat what it
// prints. None is part of `make test`: a number on a shared machine is no pass or fail.
package bench
