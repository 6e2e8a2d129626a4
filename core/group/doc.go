// Package group is the coordinator of the consumer groups of one partition of
// __consumer_offsets, as a machine: a value that is stepped with inputs and answers
// with effects. It has no goroutine, lock, channel or clock.
package group
