// Altered is brokerd with a main of its own, for faults that no network and no signal can
// cause: its wall clock is set from outside, and each lane of its transport has a port.
//
//	altered --clock FILE --set name=value ...
//
// It owns that wiring alone, and never changes what a broker does. All else is the broker's, with the plugins that brokerd has
// built in: the store is a process, which follows the same clock, and the transport is in
// the broker's own.
package main
