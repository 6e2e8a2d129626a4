package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// memberSilence is how long a member of the quorum that is no broker yet must not have been
// heard of, to count as one that does not run.
const memberSilence = 3 * time.Second

func (m *mover) decommission(ctx context.Context, fewer bool) error {
	if err := m.empty(ctx, fewer); err != nil {
		return err
	}
	if err := m.takeVote(ctx); err != nil {
		return err
	}
	for {
		v, err := m.lookForRest(ctx)
		if err != nil {
			return err
		}
		if !v.runs(m.id) {
			break
		}
		m.say("broker %d has nothing left: stop it now (SIGTERM); this goes on when it is gone", m.id)
		if err := m.pause(ctx); err != nil {
			return err
		}
	}
	if err := m.empty(ctx, fewer); err != nil { // of what was made meanwhile
		return err
	}
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = m.id
	resp, err := req.RequestWith(ctx, m.client)
	if err == nil {
		err = kafkaError(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("unregister broker %d: %w", m.id, err)
	}
	_, err = fmt.Fprintf(m.console.out, "broker %d is decommissioned; its data directory is of no use any more\n", m.id)
	return err
}

// lookForRest shows the cluster, in which something has to be left of the broker: one that was
// never registered, or is not any more, may be a member of the quorum still.
func (m *mover) lookForRest(ctx context.Context) (*clusterView, error) {
	v, err := lookAt(ctx, m.client)
	if err != nil {
		return nil, err
	}
	if v.broker(m.id) == nil && !slices.ContainsFunc(v.Controllers, func(c controllerView) bool { return c.ID == m.id }) {
		return nil, m.notFound()
	}
	return v, nil
}

// runs says whether a broker runs, as far as the cluster knows.
func (v *clusterView) runs(id int32) bool {
	if b := v.broker(id); b != nil {
		return b.State != stateFenced
	}
	return slices.ContainsFunc(v.Controllers, func(c controllerView) bool {
		return c.ID == id && (c.Role == roleLeader || c.SilentMillis != nil && *c.SilentMillis < memberSilence.Milliseconds())
	})
}

// empty moves replicas until the broker has none.
func (m *mover) empty(ctx context.Context, fewer bool) error {
	act := fmt.Sprintf("decommission broker %d", m.id)
	tries := map[string]int{}
	total := 0
	for {
		v, err := m.lookForRest(ctx)
		if err != nil {
			return err
		}
		b := v.broker(m.id)
		if b == nil || b.Replicas == 0 {
			return nil
		}
		total = max(total, b.Replicas)
		moves, cannot := v.planDecommission(m.id, fewer)
		if len(cannot) > 0 && cannot[0].few {
			return fmt.Errorf("%s: %s", act, tooFew(cannot, v.serving(m.id)))
		}
		if len(cannot) > 0 {
			return stuckError(act, cannot)
		}
		m.say("broker %d: %d of %d replicas moved, %d partitions being reassigned%s", m.id, total-b.Replicas, total, v.Partitions.Reassigning, v.awaited())
		refused, err := m.reassign(ctx, moves[:min(max(0, movingMax-v.Partitions.Reassigning), len(moves))])
		if err != nil {
			return err
		}
		for _, r := range refused {
			name := r.partition.String()
			if tries[name]++; tries[name] >= moveTries {
				cannot = append(cannot, r)
			}
		}
		if len(cannot) > 0 {
			return stuckError(act, cannot)
		}
		if err := m.pause(ctx); err != nil {
			return err
		}
	}
}

// tooFew says that the brokers that are left are too few for the replicas of partitions.
func tooFew(of []stuck, left []int32) string {
	name := of[0].partition.String()
	if n := len(of) - 1; n > 0 {
		name = fmt.Sprintf("%s and %d more", name, n)
	}
	who := "no other broker serves"
	if len(left) > 0 {
		who = fmt.Sprintf("only %s %s without it", brokersText(left), verb(left, "serves", "serve"))
	}
	return fmt.Sprintf("%s, too few for the replicas of %s: start another one first, or say --fewer-replicas", who, name)
}

// verb is what so many brokers do.
func verb(ids []int32, one, more string) string {
	if len(ids) == 1 {
		return one
	}
	return more
}

// awaited says for which brokers reassignments wait that do not serve, or "".
func (v *clusterView) awaited() string {
	var ids []int32
	for i := range v.partitions {
		p := &v.partitions[i]
		if len(p.adding)+len(p.removing) == 0 {
			continue
		}
		for _, id := range p.wanted() {
			if b := v.broker(id); (b == nil || b.State != stateServing) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	return fmt.Sprintf("; they wait for %s, which %s not serve", brokersText(ids), verb(ids, "does", "do"))
}

// brokersText names brokers, of which there is one at least.
func brokersText(ids []int32) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = strconv.Itoa(int(id))
	}
	last := len(names) - 1
	if last == 0 {
		return "broker " + names[0]
	}
	return "brokers " + strings.Join(names[:last], ", ") + " and " + names[last]
}

// takeVote makes the broker's member of the quorum one that follows, and says who votes then.
func (m *mover) takeVote(ctx context.Context) error {
	v, err := m.lookForRest(ctx)
	if err != nil {
		return err
	}
	if v.quorumErr != nil {
		return fmt.Errorf("ask who votes: %w", v.quorumErr)
	}
	taken := false
	for _, c := range v.Controllers {
		if c.ID != m.id || c.Role == roleLearner {
			continue
		}
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID = c.ID, c.directory
		resp, err := req.RequestWith(ctx, m.client)
		if err == nil {
			err = kafkaError(resp.ErrorCode, resp.ErrorMessage)
		}
		if err != nil {
			return fmt.Errorf("take the vote of broker %d: %w", m.id, err)
		}
		taken = true
	}
	if !taken {
		return nil
	}
	if v, err = m.lookForRest(ctx); err != nil {
		return err
	}
	m.say("broker %d does not vote any more%s", m.id, v.votersText())
	return nil
}

// votersText says who votes, and what that means where it is two, or "" where it is not known.
func (v *clusterView) votersText() string {
	var ids []int32
	for _, c := range v.Controllers {
		if c.Role != roleLearner {
			ids = append(ids, c.ID)
		}
	}
	slices.Sort(ids)
	switch len(ids) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; %s does, alone", brokersText(ids))
	case 2:
		return fmt.Sprintf("; %s do, and nothing can be changed while either is down: start another broker, which votes by itself", brokersText(ids))
	}
	return fmt.Sprintf("; %s do", brokersText(ids))
}
