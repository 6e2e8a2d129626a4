// Package model is the vocabulary of the core: ids, epochs, the sentinel errors
// that mean something to a client, and the values in which the packages at the
// edge ask those that own state.
//
// It owns no behaviour beyond formatting and parsing its own values. It never
// does I/O, never keeps state, and imports nothing of ours but the record
// batch's header.
package model
