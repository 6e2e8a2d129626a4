package faultfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Lost is what a loss of power took.
type Lost struct {
	Names, Files int   // changes of names, and files of whose bytes something had not been synced
	Bytes        int64 // of files that were there and had not been synced
}

// LosePower forgets of what was not synced what chance does not keep. It is for a disk that is
// not mounted.
func (d *Disk) LosePower(rng *rand.Rand) (Lost, error) {
	d.power.Lock()
	defer d.power.Unlock()
	var lost Lost
	for _, id := range slices.Sorted(maps.Keys(d.nodes)) {
		d.nodes[id].keepNames(rng, &lost)
	}
	alive := map[uint64]*node{}
	if err := d.root.losePower(rng, alive, &lost); err != nil {
		return lost, err
	}
	for id, n := range d.nodes {
		if alive[id] == nil && n.content != nil {
			n.holders, n.named = 1, nil
			d.release(n)
		}
	}
	d.nodes = alive
	used := int64(0)
	for _, n := range alive {
		if n.content != nil {
			used += n.content.bytes
		}
	}
	d.used.Store(used)
	d.room.Store(0)
	return lost, nil
}

// keepNames keeps a prefix of the changes of a directory's names; what went to another
// directory goes if it is kept there.
func (n *node) keepNames(rng *rand.Rand, lost *Lost) {
	kept := rng.IntN(len(n.named) + 1)
	lost.Names += len(n.named) - kept
	for _, c := range n.named[:kept] {
		switch {
		case c.move == nil:
			c.apply(n.kept)
		case c.n != nil:
			c.move.kept = true
			c.apply(n.kept)
		}
	}
}

// losePower does so to a node and what is below it, and counts who holds each anew.
func (n *node) losePower(rng *rand.Rand, alive map[uint64]*node, lost *Lost) error {
	alive[n.id] = n
	n.holders, n.live, n.opened = 0, 0, 0
	if n.content != nil {
		if len(n.content.before) > 0 || n.content.bytes != n.content.durable {
			lost.Files++
			lost.Bytes += max(0, n.content.bytes-n.content.durable)
		}
		return n.content.losePower(rng)
	}
	for _, c := range n.named {
		if c.move != nil && c.n == nil && c.move.kept && n.kept[c.from] == c.move.n {
			delete(n.kept, c.from)
		}
	}
	n.names, n.named = maps.Clone(n.kept), nil
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		child := n.names[name]
		if err := child.losePower(rng, alive, lost); err != nil {
			return err
		}
		child.parent, child.name, child.holders, child.live = n, name, 2, 1
	}
	return nil
}
