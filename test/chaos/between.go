package main

import "os/exec"

// between is the network between brokers, which can be cut in each direction: namespaces, or
// wires where those may not be made.
type between interface {
	// host is the address at which a broker listens.
	host(n int) string
	// reach is where other brokers dial one that listens at an address.
	reach(n int, transport string) (string, error)
	// start starts a broker's process where its network is; ended is called when it has ended.
	start(n int, cmd *exec.Cmd) error
	ended(n int)
	// sever cuts what one broker says to another.
	sever(from, to int) error
	// severPort cuts what one broker says to a port of another, and what that port answers,
	// where the network can.
	severPort(from, to, port int) error
	// mend ends all cuts, and says what becomes of what they kept. reset loses the
	// connections, where the network can.
	mend(reset bool) (what string, err error)
	// stop ends all of it, when no broker runs.
	stop()
}

// newBetween makes a network for all brokers of a run, of which owner knows whose a socket is.
func newBetween(owner func(inode string) int) (between, error) {
	if inHub() {
		return newNamespaces(brokers)
	}
	return newWires(owner), nil
}
