// Package lifecycle is the broker's side of being a member of its cluster: it registers
// the broker, says again and again that it lives, knows under which broker epoch and
// whether it is fenced, and leaves in order. (KIP-631)
//
// It owns when the controller is asked, and what its answers mean for this broker. It
// never decides about metadata, and never sends: whoever hosts the Machine performs its
// effects, finds the active controller, and turns what happens into inputs.
//
// Invariants: heartbeats go on whatever becomes of earlier ones, so that a lost message
// costs a period and not a time-out; an answer of an earlier registration changes nothing;
// a broker that another incarnation has replaced never registers again; what is done in one
// life of a process is done under one incarnation; a broker with a directory that does not
// serve ends where the controller does not hear of it. Tested in machine_test.go.
package lifecycle
