package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/sim/check"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// finish reads all logs as they lie on the disks, and tells the checker.
func (c *cluster) finish() {
	img := c.check.Newest()
	highs := make(map[model.Partition]int64)
	for _, n := range c.nodes {
		for _, l := range n.leads() {
			if p, _, ok := img.Partition(l.Partition); ok && p.Leader == n.id {
				highs[l.Partition] = l.HighWatermark
			}
		}
	}
	for _, n := range c.nodes {
		n.kill(0)
	}
	for t := range img.Topics() {
		for i := range t.Partitions {
			id := model.Partition{Topic: t.ID, Index: int32(i)}
			p := &t.Partitions[i]
			var logs []check.Log
			for _, r := range p.Replicas {
				n := c.node(r)
				l, err := n.readLog(id)
				if err != nil {
					c.check.Violate("partition %d: the log of node %d cannot be read: %v", i, r, err)
					continue
				}
				l.InSync = slices.Contains(p.ISR, r)
				logs = append(logs, l)
			}
			c.check.Logs(id, p.Leader, highs[id], logs)
		}
	}
}

// readLog reads one log from a node's disk.
func (n *node) readLog(p model.Partition) (check.Log, error) {
	n.disk.Kill()
	s, err := n.openDisk(memstore.Options{Now: n.Now})
	if err != nil {
		return check.Log{}, err
	}
	ctx, opened := context.Background(), openFor(s, p)
	if opened.Err != nil {
		return check.Log{}, opened.Err
	}
	l := check.Log{Node: n.id, Start: opened.LogStart, End: opened.LEO}
	for next := opened.LogStart; next < opened.LEO; {
		got, err := s.Read(ctx, storage.ReadRequest{Handle: opened.Handle, Offset: next, UpTo: opened.LEO, MaxBytes: 1 << 20, AtLeastOne: true})
		if err != nil {
			return l, err
		}
		if got.Next == next {
			return l, errors.New("nothing is read below the log end")
		}
		for rest := got.Data; len(rest) > 0; {
			_, b, more, err := recordbatch.Next(rest)
			if err != nil {
				return l, err
			}
			l.Batches, rest = append(l.Batches, b), more
		}
		next = got.Next
	}
	return l, nil
}

// openFor opens a log for reading.
func openFor(s *memstore.Store, p model.Partition) storage.OpenResult {
	return s.Open(context.Background(), []storage.OpenSpec{{ID: storage.LogID{Topic: p.Topic, Partition: p.Index}, LeaderEpoch: 1 << 30}})[0]
}
