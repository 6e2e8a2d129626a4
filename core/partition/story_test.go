package partition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/cockroachdb/datadriven"
)

// TestStories plays the stories in testdata/stories. Each line is an input; below it
// stand the effects that it has, in words.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var s story
		datadriven.RunTest(t, path, s.play)
	})
}

// story is a machine and the time in it, counted from its beginning.
type story struct {
	m      *Machine
	now    time.Time
	timers map[Timer]time.Time
	out    Effects
	text   strings.Builder
	// stored is the last snapshot that was stored, asked the last asked for.
	stored, asked  PutSnapshot
	partitionEpoch model.PartitionEpoch // of the last that the metadata said
}

var storyBegins = time.Unix(1_700_000_000, 0)

var faultsByName = map[string]Fault{
	"": FaultNone, "retry": FaultRetry, "fenced": FaultFenced, "corrupt": FaultCorrupt, "full": FaultFull,
	"gone": FaultGone, "invalid": FaultInvalid, "unknown": FaultUnknown,
}

func (s *story) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.text.Reset()
	if d.Cmd == "new" {
		s.begin(t, d)
		return "ok\n"
	}
	if d.Cmd == "restart" {
		s.m = New(Config{Node: 1, Limits: s.m.limits, Settings: s.m.settings, Session: s.m.LastSession()})
		clear(s.timers)
		return "ok\n"
	}
	if in := s.withSettings(t, d, s.input(t, d)); in != nil {
		s.step(in)
	} else {
		s.other(t, d)
	}
	if s.text.Len() == 0 {
		return "nothing\n"
	}
	return s.text.String()
}

func (s *story) begin(t *testing.T, d *datadriven.TestData) {
	settings, limits := DefaultSettings(), DefaultLimits()
	limits.ScanBatches = 100
	settings.MinISR = intArg(t, d, "min-isr", 1)
	settings.Flush = map[string]FlushPolicy{"": FlushReplicated, "always": FlushAlways, "interval": FlushInterval}[strArg(t, d, "flush")]
	settings.RetentionBytes = int64(intArg(t, d, "retention-bytes", -1))
	settings.Compact = strArg(t, d, "cleanup") == "compact"
	settings.Delete = !settings.Compact
	limits.QueuedBatches = intArg(t, d, "queue", limits.QueuedBatches)
	limits.InFlightBatches = intArg(t, d, "in-flight", limits.InFlightBatches)
	*s = story{now: storyBegins, timers: map[Timer]time.Time{}}
	s.m = New(Config{Node: 1, Limits: limits, Settings: settings})
}

// withSettings is a role with the settings of the same metadata, where there are some.
func (s *story) withSettings(t *testing.T, d *datadriven.TestData, in Input) Input {
	switch in.(type) {
	case *Lead, *Follow:
		if d.HasArg("min-isr") {
			settings := s.m.settings
			settings.MinISR = intArg(t, d, "min-isr", settings.MinISR)
			return &Configure{Settings: settings, Role: in}
		}
	}
	return in
}

// input makes an input from a command, or nil when it is none.
func (s *story) input(t *testing.T, d *datadriven.TestData) Input {
	gen := Generation(intArg(t, d, "gen", int(s.m.gen)))
	fault := faultsByName[strArg(t, d, "fault")]
	switch d.Cmd {
	case "lead":
		isr := nodesArg(t, d, "isr", "1")
		s.partitionEpoch = model.PartitionEpoch(intArg(t, d, "pepoch", int(s.partitionEpoch)+1))
		return &Lead{Epoch: int32(intArg(t, d, "epoch", 0)), PartitionEpoch: s.partitionEpoch, BrokerEpoch: 10, ISR: isr, ELR: nodesArg(t, d, "elr", ""),
			Replicas: assignment(intArg(t, d, "replicas", len(isr))), Target: intArg(t, d, "target", len(isr))}
	case "resign":
		return &Resign{Epoch: int32(intArg(t, d, "epoch", 0))}
	case "stop":
		return &Stop{}
	case "opened":
		return &Opened{Gen: gen, Fault: fault, LogStart: int64(intArg(t, d, "start", 0)), LEO: int64(intArg(t, d, "leo", 0)),
			Durable: int64(intArg(t, d, "durable", intArg(t, d, "leo", 0))), Epochs: epochsArg(t, d), MayHaveLost: d.HasArg("may-have-lost"),
			SnapshotPresent: d.HasArg("snapshot"), SnapshotOffset: s.stored.Offset, Snapshot: s.stored.Data}
	case "scanned":
		return &Scanned{Gen: gen, Fault: fault, Batches: batches(t, d)}
	case "append":
		b := batches(t, d)[0]
		acks := map[string]model.Acks{"": model.AcksAll, "all": model.AcksAll, "1": model.AcksLeader, "0": model.AcksNone}[strArg(t, d, "acks")]
		return &Append{ID: RequestID(intArg(t, d, "id", 0)), Batch: b, Acks: acks, LogAppendTime: -1,
			Deadline: s.now.Add(time.Duration(intArg(t, d, "timeout", 30)) * time.Second)}
	case "stored":
		last := int64(intArg(t, d, "last", 0))
		leo := int64(intArg(t, d, "leo", int(last)+1))
		return &AppendDone{Gen: gen, Fault: fault, Base: int64(intArg(t, d, "base", int(last))), Last: last, LEO: leo,
			Machine: !d.HasArg("process-only")}
	case "flushed":
		return &FlushDone{Gen: gen, Fault: fault, Durable: int64(intArg(t, d, "durable", 0))}
	case "trim":
		return &Trim{ID: RequestID(intArg(t, d, "id", 0)), To: int64(intArg(t, d, "to", 0))}
	case "trimmed":
		return &TrimDone{Gen: gen, Fault: fault, ID: RequestID(intArg(t, d, "id", 0)), LogStart: int64(intArg(t, d, "start", 0))}
	case "retained":
		return &Retained{Gen: gen, Fault: fault, LogStart: int64(intArg(t, d, "start", 0))}
	case "snapshot-done":
		if fault == FaultNone {
			s.stored = s.asked
		}
		return &SnapshotDone{Gen: gen, Fault: fault}
	case "corrupt":
		return &Corrupt{Gen: gen, Offset: int64(intArg(t, d, "offset", 0))}
	case "read-failed":
		return &ReadFailed{Gen: gen, Fault: fault}
	case "settings":
		settings := s.m.settings
		settings.MinISR = intArg(t, d, "min-isr", settings.MinISR)
		if d.HasArg("flush") {
			settings.Flush = map[string]FlushPolicy{"replicated": FlushReplicated, "always": FlushAlways, "interval": FlushInterval}[strArg(t, d, "flush")]
		}
		return &Configure{Settings: settings, Reopen: d.HasArg("reopen")}
	}
	return s.replicationInput(t, d)
}

func (s *story) other(t *testing.T, d *datadriven.TestData) {
	switch d.Cmd {
	case "pass":
		s.pass(t, d)
	case "view":
		v := s.m.View()
		fmt.Fprintf(&s.text, "%s start=%d hw=%d leo=%d epoch=%d", [...]string{"none", "opening", "serving", "reopened", "offline", "following"}[v.Status],
			v.LogStart, v.HighWater, v.LEO, v.Epoch)
		for _, e := range v.epochs.starts {
			fmt.Fprintf(&s.text, " %d@%d", e.Epoch, e.Start)
		}
		if v.damaged {
			fmt.Fprint(&s.text, " damaged")
		}
		fmt.Fprintln(&s.text)
		if err := v.Serving(); err != nil {
			fmt.Fprintln(&s.text, err)
		}
	default:
		d.Fatalf(t, "no command %q", d.Cmd)
	}
}

// pass lets time pass and fires what is due, in order.
func (s *story) pass(t *testing.T, d *datadriven.TestData) {
	by, err := time.ParseDuration(strArg(t, d, "by"))
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	end := s.now.Add(by)
	for {
		next, at := Timer(-1), end
		for timer := TimerDeadline; timer <= TimerExpiry; timer++ {
			if when, ok := s.timers[timer]; ok && !when.After(at) && (next < 0 || when.Before(at)) {
				next, at = timer, when
			}
		}
		if next < 0 {
			break
		}
		delete(s.timers, next)
		if at.After(s.now) {
			s.now = at
		}
		s.step(&Fired{Timer: next})
	}
	s.now = end
}

func (s *story) step(in Input) {
	s.m.Step(s.now, in, &s.out)
	e := &s.out
	w := &s.text
	for _, n := range e.Notices {
		fmt.Fprintf(w, "notice %s", n.Kind)
		if n.From != 0 || n.To != 0 {
			fmt.Fprintf(w, " %d..%d", n.From, n.To)
		}
		fmt.Fprintf(w, ": %s", n.Text)
		if n.Err != nil {
			fmt.Fprintf(w, ": %v", n.Err)
		}
		fmt.Fprintln(w)
	}
	if e.Open != nil {
		fmt.Fprintf(w, "open gen=%d epoch=%d\n", e.Open.Gen, e.Open.Epoch)
	}
	if e.Scan != nil {
		fmt.Fprintf(w, "scan %d..%d\n", e.Scan.From, e.Scan.UpTo)
	}
	for _, a := range e.Appends {
		fmt.Fprintf(w, "store id=%d at %d..%d epoch=%d", a.ID, a.Base, a.Last, a.Epoch)
		if a.Machine {
			fmt.Fprint(w, " sync")
		}
		fmt.Fprintln(w)
	}
	if e.Flush != nil {
		fmt.Fprintln(w, "flush")
	}
	s.writeReplication()
	for _, tr := range e.Trims {
		fmt.Fprintf(w, "trim log to %d\n", tr.To)
	}
	if e.Retain != nil {
		fmt.Fprintf(w, "retain below %d\n", e.Retain.Ceiling)
	}
	if e.Snapshot != nil {
		fmt.Fprintf(w, "snapshot at %d\n", e.Snapshot.Offset)
		s.asked = *e.Snapshot
	}
	for _, r := range e.Responses {
		if r.Err != nil {
			fmt.Fprintf(w, "answer id=%d: %v\n", r.ID, r.Err)
		} else {
			fmt.Fprintf(w, "answer id=%d: offset %d, log start %d\n", r.ID, r.BaseOffset, r.LogStart)
		}
	}
	if e.Close != nil {
		fmt.Fprintln(w, "close")
	}
	for _, timer := range e.Timers {
		s.timers[timer.Timer] = timer.At
	}
	e.Reset()
}

// batches reads lines or arguments "records= pid= epoch= seq= at=".
func batches(t *testing.T, d *datadriven.TestData) []recordbatch.Info {
	if d.Cmd == "append" {
		n := int64(intArg(t, d, "records", 1))
		return []recordbatch.Info{{LastOffset: n - 1, Records: int32(n), Bytes: int32(100 * n), ProducerID: int64(intArg(t, d, "pid", -1)),
			ProducerEpoch: int16(intArg(t, d, "pepoch", 0)), BaseSequence: int32(intArg(t, d, "seq", -1))}}
	}
	var out []recordbatch.Info
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		if line == "" {
			continue
		}
		var base, last, pid int64
		var epoch int16
		var seq int32
		var leaderEpoch model.LeaderEpoch
		if _, err := fmt.Sscanf(line, "%d..%d pid=%d pepoch=%d seq=%d", &base, &last, &pid, &epoch, &seq); err != nil {
			if _, err := fmt.Sscanf(line, "%d..%d epoch=%d", &base, &last, &leaderEpoch); err != nil {
				d.Fatalf(t, "batch %q: %v", line, err)
			}
			pid, seq = -1, -1
			_, _ = fmt.Sscanf(line, "%d..%d epoch=%d pid=%d seq=%d", &base, &last, &leaderEpoch, &pid, &seq)
		}
		n := last - base + 1
		out = append(out, recordbatch.Info{LeaderEpoch: leaderEpoch, BaseOffset: base, LastOffset: last, Records: int32(n), Bytes: int32(100 * n), ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq})
	}
	return out
}

func epochsArg(t *testing.T, d *datadriven.TestData) []EpochStart {
	var out []EpochStart
	for _, e := range strings.FieldsFunc(strArg(t, d, "epochs"), func(r rune) bool { return r == '+' }) {
		var es EpochStart
		if _, err := fmt.Sscanf(e, "%d@%d", &es.Epoch, &es.Start); err != nil {
			d.Fatalf(t, "epoch %q: %v", e, err)
		}
		out = append(out, es)
	}
	return out
}

func strArg(t *testing.T, d *datadriven.TestData, name string) string {
	return strArgOr(t, d, name, "")
}

func strArgOr(t *testing.T, d *datadriven.TestData, name, def string) string {
	if !d.HasArg(name) {
		return def
	}
	var v string
	d.ScanArgs(t, name, &v)
	return v
}

func intArg(t *testing.T, d *datadriven.TestData, name string, def int) int {
	if !d.HasArg(name) {
		return def
	}
	var v int
	d.ScanArgs(t, name, &v)
	return v
}

func atoi(t *testing.T, d *datadriven.TestData, s string) int {
	var n int
	if _, err := fmt.Sscan(s, &n); err != nil {
		d.Fatalf(t, "number %q: %v", s, err)
	}
	return n
}

// assignment is replicas on the nodes from 1 to n.
func assignment(n int) []model.NodeID {
	nodes := make([]model.NodeID, n)
	for i := range nodes {
		nodes[i] = model.NodeID(i + 1)
	}
	return nodes
}
