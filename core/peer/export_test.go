package peer

// Held is how many links and streams x knows.
func (x *Links) Held() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.wires) + len(x.owners) + len(x.dials)
}
