// Command go drives Go's client libraries, and kcat, for the tests of brokerd's
// clients: its first argument names the client, the rest is the protocol that the
// package test/clients tells.
//
// Each client has a file of its own, which uses it as its documentation says. What
// a driver sees it prints; it never judges anything but the answers to its own
// administration.
package main
