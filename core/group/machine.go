package group

import "time"

// Machine is the coordinator of the groups of one offsets partition. It is not safe
// for concurrent use.
type Machine struct {
	settings Settings
	newID    func() string
}

// New makes a machine that coordinates nothing until it leads. newID draws what makes
// a member's ID unique; it is called by Step.
func New(settings Settings, newID func() string) *Machine {
	return &Machine{settings: settings, newID: newID}
}

// Step handles one input. now carries a monotonic reading, which sessions are measured
// by; what is written and what expires is by its wall clock.
func (m *Machine) Step(now time.Time, in Input, out *Effects) {}
