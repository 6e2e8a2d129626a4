package group

import "github.com/brokerd/brokerd/core/model"

// Census counts the groups that the machine serves, and their members.
type Census struct {
	Groups  map[model.GroupState]int
	Members int
}

// Count adds this machine's groups to c.
func (m *Machine) Count(c *Census) {
	if m.phase != phaseServing {
		return
	}
	if c.Groups == nil {
		c.Groups = make(map[model.GroupState]int)
	}
	for _, g := range m.order {
		c.Groups[g.state]++
		c.Members += len(g.members)
	}
}
