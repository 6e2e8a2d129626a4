// Package membership hosts a lifecycle.Machine: it takes what the machine asks for to the active
// controller, and what the broker knows to the machine. It is this broker's part in the cluster:
// the broker is registered, says that it lives, and leaves. (KIP-631)
//
// It owns the loop of that machine, which questions are still waited for, what an operator is
// told of it, and the rule that a broker beside which no other serves gives nothing up: it says
// of no directory that it does not serve, since nobody could lead what that holds. It decides
// nothing about metadata, and knows neither where the controller is nor how replicas work.
//
// Invariants: at most one question waits while nobody leads the quorum; a lease counts from when
// the heartbeat was sent; leaving is bounded by who asks for it. Tested in membership_test.go.
// core/sim/cluster turns the same loop, among faults.
package membership
