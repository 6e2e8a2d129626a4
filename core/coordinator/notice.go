package coordinator

import (
	"log/slog"
	"strings"
	"time"

	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/model"
)

// logOf is the logger of what concerns one partition.
func (s *Shard) logOf(h *hosted) *slog.Logger {
	return s.log.With("topic", model.OffsetsTopic, "partition", h.partition.Index, "leader_epoch", h.epoch)
}

// rareEvery is how often a line of one kind is logged.
const rareEvery = 10 * time.Second

// rare keeps lines of one kind from filling the log: a store that fails concerns every
// partition and every client.
type rare struct {
	logged time.Time
	times  int // since then
}

// tell counts one more, and says whether to log it now, and for how many.
func (r *rare) tell(now time.Time) (times int, log bool) {
	r.times++
	if !r.logged.IsZero() && now.Sub(r.logged) < rareEvery {
		return 0, false
	}
	times = r.times
	r.logged, r.times = now, 0
	return times, true
}

// nameMax is how much of a group's name is logged: it may have 32 KiB, a line for each
// of what its members do, and comes from anybody.
const nameMax = 249

// named is a group's name in the log.
func named(group string) string {
	if len(group) <= nameMax {
		return group
	}
	return group[:nameMax] + "..."
}

// refused tells of writes that failed.
func (s *Shard) refused(h *hosted, n *group.Notice) {
	if times, log := s.refusals.tell(s.clock.Now()); log {
		s.logOf(h).Warn("groups' records were not written", "group", named(n.Group), "times", times, "err", n.Err)
	}
}

// full tells of requests for which there is no memory.
func (s *Shard) full(h *hosted, n *group.Notice) {
	if times, log := s.shortages.tell(s.clock.Now()); log {
		s.logOf(h).Warn("groups have no memory for a request", "group", named(n.Group), "times", times, "err", n.Err)
	}
}

// notice tells the log, and who counts, what a machine has to say.
func (s *Shard) notice(h *hosted, n *group.Notice) {
	log := s.log.With("group", named(n.Group), "generation", n.Generation)
	reason := strings.TrimSuffix(n.Text, ": ") // where a client gave none
	switch n.Kind {
	case group.NoticeRebalancing:
		s.events.Rebalanced()
		log.Info("group rebalances", "members", n.Count, "reason", reason)
	case group.NoticeStable:
		log.Info("group is stable", "members", n.Count)
	case group.NoticeRemoved:
		log.Info("member removed", "member", n.Member, "members", n.Count, "reason", reason)
	case group.NoticeEmpty:
		log.Info("group has no members any more")
	case group.NoticeExpired:
		s.events.Expired(n.Count)
		log.Info("offsets have expired", "offsets", n.Count)
	case group.NoticeRefused:
		if !h.loaded {
			return // a load that failed, which was told of
		}
		s.events.Refused()
		s.refused(h, n)
	case group.NoticePassedOver:
		s.logOf(h).Error("records of the offsets topic cannot be read; they are passed over", "records", n.Count, "err", n.Err)
	case group.NoticeMemory:
		s.events.Full()
		s.full(h, n)
	case group.NoticeLoaded:
	}
}
