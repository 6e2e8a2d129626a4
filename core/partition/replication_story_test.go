package partition

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/cockroachdb/datadriven"
)

var verdictNames = [...]string{"accepted", "diverges", "reset", "fenced", "unknown"}

var outcomeNames = [...]string{"done", "unknown", "ineligible", "stale"}

// named is the index of a name.
func named(t *testing.T, d *datadriven.TestData, names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	d.Fatalf(t, "no %q", name)
	return 0
}

// replicationInput makes an input that has to do with other replicas from a command, or
// nil when it is none. Sessions and epochs are the present ones unless others are given.
func (s *story) replicationInput(t *testing.T, d *datadriven.TestData) Input {
	node := model.NodeID(intArg(t, d, "node", 2))
	epoch := model.LeaderEpoch(intArg(t, d, "epoch", int(s.m.epoch)))
	session := s.m.up.session
	if f := s.m.follower(node); f != nil && s.m.role == roleLeader {
		session = f.session
	}
	if d.Cmd == "subscribe" {
		session++
	}
	session = Session(intArg(t, d, "session", int(session)))
	leo := int64(intArg(t, d, "leo", 0))
	start := int64(intArg(t, d, "start", 0))
	under := model.PartitionEpoch(intArg(t, d, "under", int(s.m.lead.PartitionEpoch)))
	switch d.Cmd {
	case "follow":
		isr := nodesArg(t, d, "isr", "1+2")
		s.partitionEpoch = model.PartitionEpoch(intArg(t, d, "pepoch", int(s.partitionEpoch)+1))
		return &Follow{Epoch: epoch, PartitionEpoch: s.partitionEpoch, Leader: model.NodeID(intArg(t, d, "leader", 2)), ISR: isr,
			ELR: nodesArg(t, d, "elr", ""), Replicas: assignment(intArg(t, d, "replicas", 3)), Target: intArg(t, d, "target", 3)}
	case "reached":
		return &Reached{Node: node, Up: !d.HasArg("down")}
	case "subscribed":
		in := &Subscribed{Node: node, Session: session, Epoch: epoch, LogStart: start, End: model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1},
			Verdict: Verdict(named(t, d, verdictNames[:], strArgOr(t, d, "verdict", "accepted")))}
		if end := strArg(t, d, "end"); end != "" {
			if _, err := fmt.Sscanf(end, "%d@%d", &in.End.Epoch, &in.End.EndOffset); err != nil {
				d.Fatalf(t, "end %q: %v", end, err)
			}
		}
		return in
	case "replicate":
		return &Replicate{ID: RequestID(intArg(t, d, "id", 0)), Session: session, Epoch: epoch, From: int64(intArg(t, d, "from", int(s.m.next))),
			Batches: batches(t, d), HighWater: int64(intArg(t, d, "hw", 0)), LogStart: start}
	case "doubted":
		return &Doubted{Doubt: !d.HasArg("over")}
	case "ailing":
		return &Ailing{Ails: !d.HasArg("over")}
	case "damaged":
		return &Damaged{Session: session, Err: errors.New("a wrong CRC")}
	case "truncated":
		return &Truncated{Gen: Generation(intArg(t, d, "gen", int(s.m.gen))), LEO: leo, Fault: faultsByName[strArg(t, d, "fault")]}
	case "deleted":
		return &Deleted{Gen: Generation(intArg(t, d, "gen", int(s.m.gen)))}
	case "subscribe":
		return &Subscribe{Node: node, BrokerEpoch: model.BrokerEpoch(intArg(t, d, "broker", int(node)*10)), Session: session, Epoch: epoch, PartitionEpoch: under,
			LEO: leo, Counted: int64(intArg(t, d, "counted", int(leo))), LastEpoch: int32(intArg(t, d, "last-epoch", -1)), LogStart: start}
	case "unsubscribed":
		return &Unsubscribed{Node: node, Session: session}
	case "follower":
		return &Acknowledged{Node: node, Session: session, Epoch: epoch, PartitionEpoch: under, LEO: leo}
	case "altered":
		in := &Altered{Epoch: epoch, PartitionEpoch: model.PartitionEpoch(intArg(t, d, "pepoch", int(s.m.lead.PartitionEpoch))),
			Outcome: Outcome(named(t, d, outcomeNames[:], strArgOr(t, d, "outcome", "done")))}
		if !d.HasArg("earlier") { // it answers the last question
			in.Lost = s.m.asking.lost
		}
		if in.Outcome == OutcomeDone {
			in.NewPartitionEpoch = model.PartitionEpoch(intArg(t, d, "new", int(in.PartitionEpoch)+1))
			in.ISR = nodesArg(t, d, "isr", "1")
			s.partitionEpoch = max(s.partitionEpoch, in.NewPartitionEpoch)
		}
		return in
	}
	return nil
}

// writeReplication writes the effects that have to do with other replicas.
func (s *story) writeReplication() {
	e, w := &s.out, &s.text
	for _, c := range e.Copies {
		fmt.Fprintf(w, "copy id=%d at %d..%d epoch=%d", c.ID, c.Base, c.Last, c.Epoch)
		if c.Machine {
			fmt.Fprint(w, " sync")
		}
		fmt.Fprintln(w)
	}
	if tr := e.Truncate; tr != nil {
		fmt.Fprintf(w, "truncate to %d epoch=%d\n", tr.To, tr.Epoch)
	}
	if e.Delete != nil {
		fmt.Fprintln(w, "delete the log")
	}
	for _, a := range e.Answers {
		fmt.Fprintf(w, "tell node=%d session=%d epoch=%d: %s", a.Node, a.Session, a.Epoch, verdictNames[a.Verdict])
		switch a.Verdict {
		case VerdictAccepted:
			fmt.Fprintf(w, " from %d, log start %d", a.From, a.LogStart)
		case VerdictDiverges:
			fmt.Fprintf(w, " epoch %d ends at %d", a.End.Epoch, a.End.EndOffset)
		case VerdictReset:
			fmt.Fprintf(w, " at %d", a.LogStart)
		}
		fmt.Fprintln(w)
	}
	for _, x := range e.EndStreams {
		fmt.Fprintf(w, "end stream node=%d session=%d\n", x.Node, x.Session)
	}
	if a := e.Alter; a != nil {
		fmt.Fprintf(w, "ask epoch=%d partition epoch=%d isr", a.Epoch, a.PartitionEpoch)
		for _, m := range a.ISR {
			fmt.Fprintf(w, " %d/%d", m.Node, m.Epoch)
		}
		if len(a.Lost) > 0 {
			fmt.Fprintf(w, " lost %v", a.Lost)
		}
		fmt.Fprintln(w)
	}
	if sub := e.Subscription; sub != nil {
		fmt.Fprintf(w, "subscribe leader=%d session=%d epoch=%d leo=%d counted=%d last-epoch=%d start=%d\n",
			sub.Leader, sub.Session, sub.Epoch, sub.LEO, sub.Counted, sub.LastEpoch, sub.LogStart)
	}
	if a := e.Ack; a != nil {
		fmt.Fprintf(w, "ack leader=%d session=%d epoch=%d leo=%d\n", a.Leader, a.Session, a.Epoch, a.LEO)
	}
	for _, id := range e.Releases {
		if s.m.role == roleFollower {
			fmt.Fprintf(w, "release id=%d\n", id)
		}
	}
}

// nodesArg reads "1+2+3".
func nodesArg(t *testing.T, d *datadriven.TestData, name, def string) []model.NodeID {
	var nodes []model.NodeID
	for _, n := range strings.FieldsFunc(strArgOr(t, d, name, def), func(r rune) bool { return r == '+' }) {
		nodes = append(nodes, model.NodeID(atoi(t, d, n)))
	}
	return nodes
}
