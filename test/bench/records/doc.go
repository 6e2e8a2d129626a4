// Command records measures brokerd beside Apache Kafka.
package main
