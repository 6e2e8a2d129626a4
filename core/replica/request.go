package replica

import (
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// request is an append, a trim, or what is copied from a leader, on its way. The payload is
// data. It is used again when it was answered, its payload was released, and no call has it
// any more.
type request struct {
	appendIn partition.Append
	timeout  time.Duration // of the append, from when the shard takes it
	data     []byte
	frame    *model.Frame // that data is in, or nil
	keeps    *model.Frame // until the request is used again
	weight   int64        // of the manager's budget
	done     func(model.Appended)

	isTrim  bool
	trimIn  partition.Trim
	trimmed func(model.TrimAnswer)

	isCopy   bool
	infos    []recordbatch.Info // of the batches of a copy
	incoming *incoming          // that its payload came in, if it has one

	// stampedBase and stampedEpoch are in data, when stamped.
	stamped      bool
	stampedBase  int64
	stampedEpoch model.LeaderEpoch
	answered     bool
	released     bool
	calls        int  // appends under way that have the payload
	stray        bool // a store may still read the payload, though its call has ended
}

// begin gives a request its number and hands it to the machine.
func (s *Shard) begin(now time.Time, r *replica, q *request) {
	id := s.number(q)
	if q.isTrim {
		q.trimIn.ID = id
		q.released = true // it has no payload
		if r.machine == nil || r.deleting {
			s.respond(&partition.Response{ID: id, LogStart: -1, Err: unavailable(r)})
			return
		}
		s.step(now, r, &q.trimIn)
		return
	}
	q.appendIn.ID, q.appendIn.Deadline = id, now.Add(q.timeout)
	if r.machine == nil || r.deleting {
		r.refuse(&q.appendIn.Batch)
		s.release(id)
		s.respond(&partition.Response{ID: id, BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Epoch: model.NoEpoch, Err: unavailable(r), Refused: true})
		return
	}
	s.step(now, r, &q.appendIn)
}

func (s *Shard) number(q *request) partition.RequestID {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		s.requests[id] = q
		return id
	}
	s.requests = append(s.requests, q)
	return partition.RequestID(len(s.requests) - 1)
}
