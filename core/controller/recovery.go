package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// logReport is how long a log is, as its broker said in one life.
type logReport struct {
	node  model.NodeID
	epoch model.BrokerEpoch
	end   model.LogEnd
}

// awaitsReports says whether everybody who was in sync may have lost something since: the
// longest log is to be found.
func awaitsReports(p *image.Partition) bool {
	return p.Leader == model.NoNode && len(p.ISR) == 0 && len(p.ELR) == 0 && len(p.LastKnownELR) > 0
}

// reportLogs notes how long a broker's logs are, where that is asked, and elects where all
// have said so.
func (d *decision) reportLogs(op ReportLogs) error {
	if _, err := d.broker(op.Broker, op.Epoch); err != nil {
		return err
	}
	var records []image.Record
	for _, end := range op.Logs {
		p, t, ok := d.img.Partition(end.Partition)
		if !ok || !awaitsReports(p) || !slices.Contains(p.LastKnownELR, op.Broker) {
			continue
		}
		// Of metadata before it says nothing of the log as it is now: it may have gone back since.
		// Of metadata to come, there is a controller that knows more.
		if end.PartitionEpoch != p.PartitionEpoch {
			continue
		}
		d.soft.note(logReport{op.Broker, op.Epoch, end})
		e := d.edit(t, end.Partition.Index)
		e.mode = asConfigured
		if r := e.finish(); r != nil {
			records = append(records, r)
		}
	}
	d.emit(records...)
	return nil
}

// note keeps the last report of each broker.
func (s *soft) note(r logReport) {
	all := s.reports[r.end.Partition]
	if i := slices.IndexFunc(all, func(o logReport) bool { return o.node == r.node }); i >= 0 {
		all[i] = r
		return
	}
	if s.reports == nil {
		s.reports = map[model.Partition][]logReport{}
	}
	s.reports[r.end.Partition] = append(all, r)
}

// forgetReports drops those of a partition that waits for none any more, after a record of it
// or of its topic: when it is to be asked again, its logs may have gone back in the same lives.
func (d *decision) forgetReports(r image.Record) {
	switch r := r.(type) {
	case *image.PartitionChangeRecord:
		if p, _, ok := d.img.Partition(r.Partition); !ok || !awaitsReports(p) {
			delete(d.soft.reports, r.Partition)
		}
	case *image.TopicRemovalRecord:
		maps.DeleteFunc(d.soft.reports, func(at model.Partition, _ []logReport) bool { return at.Topic == r.ID })
	}
}

// longest is who has the longest log of those that may have lost something, once all have
// said how long theirs are; of equals the first of the assignment. A policy that is strict
// leaves it to the operator.
func (e *edit) longest() (model.NodeID, bool) {
	if !awaitsReports(e.was) || e.d.cfg.Strict && !e.unclean {
		return model.NoNode, false
	}
	var best *logReport
	reports := e.d.soft.reports[e.at]
	for _, n := range e.next.Replicas {
		if !slices.Contains(e.was.LastKnownELR, n) {
			continue
		}
		b, ok := e.d.img.Broker(n)
		i := slices.IndexFunc(reports, func(r logReport) bool {
			return ok && r.node == n && r.epoch == b.Epoch && r.end.PartitionEpoch == e.was.PartitionEpoch // it says so again
		})
		if i < 0 {
			return model.NoNode, false
		}
		if r := &reports[i]; best == nil || compareEnds(r.end, best.end) > 0 {
			best = r
		}
	}
	if best == nil || !e.d.eligible(&e.next, best.node) {
		return model.NoNode, false
	}
	e.loses(best.end.LEO, false)
	e.d.tell(Notice{
		Warn: true, Broker: best.node, Topic: e.t.Name, Partitions: []int32{e.at.Index},
		Text: fmt.Sprintf("all replicas that were in sync may have lost records: the one with the longest log leads (leader epoch %d, log end %d)", best.end.LastEpoch, best.end.LEO),
	})
	return best.node, true
}

func compareEnds(a, b model.LogEnd) int {
	return cmp.Or(cmp.Compare(a.LastEpoch, b.LastEpoch), cmp.Compare(a.LEO, b.LEO))
}
