// Command inprocess is a broker whose store runs in its own process, without a plugin:
// the same core and the same store as brokerd's, so that what lies between them can be
// measured (see test/bench/records). It takes those flags of `brokerd dev` that a
// measurement needs. It is no way to run a broker: a store that fails takes the broker
// with it.
package main
