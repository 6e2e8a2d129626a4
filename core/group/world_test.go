package group

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// world is a machine, the log that it writes and the clients that it serves, all of them
// models. The log answers late, out of order, or with errors.
type world struct {
	t     *rapid.T
	m     *Machine
	now   time.Time
	timer time.Time
	out   Effects
	ids   int

	open    []*openWrite      // asked and not applied, in the order of asking
	log     []Record          // applied
	offsets map[string]string // what the log says of each offset, by an own reading

	requests map[RequestID]Input
	answered map[RequestID]bool
	answers  map[RequestID]Answer
	nextID   RequestID
	clients  []*client
	// assigned is what leaders gave, by group, generation and who gets it.
	assigned    map[string][]string
	generations map[*group]int32
	// stale are requests of a generation that was not the group's when they were sent.
	stale         map[RequestID]bool
	calm          bool // nothing is looked at after each step
	kept, writing *account
}

// openWrite is a write that has not been applied.
type openWrite struct {
	Write
	answered bool
	err      error
}

// client is one member's end, as far as it has been told.
type client struct {
	group, instance, member string
	generation              int32
	leader                  bool
	others                  []model.JoinedMember
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: storyBegins, offsets: map[string]string{}, requests: map[RequestID]Input{}, answered: map[RequestID]bool{}, answers: map[RequestID]Answer{},
		assigned: map[string][]string{}, generations: map[*group]int32{}, stale: map[RequestID]bool{}}
	for i := range 6 {
		c := &client{group: "g" + strconv.Itoa(i%2), generation: -1}
		if i%3 == 0 {
			c.instance = "i" + strconv.Itoa(i/2)
		}
		w.clients = append(w.clients, c)
	}
	w.clients = append(w.clients, &client{group: "g0", instance: "i0", generation: -1}) // the same instance twice
	settings := DefaultSettings()
	settings.SizeMax = 3
	settings.Retention, settings.ExpiryEvery = time.Minute, 20*time.Second
	w.kept, w.writing = &account{total: 1 << 40}, &account{total: 1 << 40}
	w.m = New(settings, w.newID, Memory{Kept: w.kept, Writes: w.writing})
	w.step(&Lead{Epoch: 1})
	w.step(&Loaded{Gen: w.m.gen})
	return w
}

func (w *world) newID() string { w.ids++; return strconv.Itoa(w.ids) }

// step steps the machine, takes its effects into the world, and checks both.
func (w *world) step(in Input) {
	w.m.Step(w.now, in, &w.out)
	for _, a := range w.out.Writes {
		if len(a.Records) == 0 || a.Gen != w.m.gen || a.Epoch != w.m.epoch {
			w.t.Fatalf("write %+v", a)
		}
		w.open = append(w.open, &openWrite{Write: a})
	}
	if w.out.Timer != nil {
		w.timer = *w.out.Timer
	}
	for _, r := range w.out.Responses {
		if w.answered[r.ID] {
			w.t.Fatalf("request %d is answered twice", r.ID)
		}
		w.answered[r.ID], w.answers[r.ID] = true, r.Answer
		if err := errOf(r.Answer); w.stale[r.ID] && (err == nil || errors.Is(err, model.ErrRebalanceInProgress)) {
			w.t.Fatalf("%+v is of another generation and is answered %v", w.requests[r.ID], err)
		}
		w.take(w.requests[r.ID], r.Answer)
	}
	for i, n := range w.out.Notices {
		later := func(other Notice) bool { return other.Group == n.Group } // the group has gone on in the same step
		if n.Kind == NoticeExpired && !slices.ContainsFunc(w.out.Notices[i+1:], later) {
			w.checkExpiry(w.m.groups[n.Group])
		}
	}
	w.out.Reset()
	w.check()
}

// checkExpiry: nothing of a group expires that its members may need.
func (w *world) checkExpiry(g *group) {
	for _, q := range w.m.writes.queue {
		asked := slices.ContainsFunc(w.out.Writes, func(a Write) bool { return a.ID == q.id })
		r, ok := q.outcome.(*removal)
		if !asked || !ok || r.group != g {
			continue
		}
		for _, key := range r.keys {
			if g.offsets[key].doomed {
				continue
			}
			if g.state != model.GroupEmpty && g.state != model.GroupStable {
				w.t.Fatalf("group %s is %s, and %v of it expires", g.id, g.state, key)
			}
			for _, mem := range g.members {
				if topicsOf(mem.metadata(g.protocol)) == key.Topic {
					w.t.Fatalf("member %s of group %s reads %s, whose offset expires", mem.id, g.id, key.Topic)
				}
			}
		}
	}
}

func (w *world) ask(in func(RequestID) Input) {
	w.nextID++
	q := in(w.nextID)
	w.requests[w.nextID] = q
	switch q := q.(type) {
	case *Heartbeat:
		w.stale[q.ID] = w.isStale(q.Group, q.Generation)
	case *Sync:
		w.stale[q.ID] = w.isStale(q.Group, q.Generation)
	case *Commit:
		w.stale[q.ID] = q.Generation >= 0 && w.isStale(q.Group, q.Generation)
	}
	w.step(q)
}

func (w *world) isStale(group string, generation int32) bool {
	g, ok := w.m.groups[group]
	return !ok || g.generation != generation
}

// take tells a client its answer.
func (w *world) take(q Input, a Answer) {
	switch a := a.(type) {
	case Joined:
		c := w.clientOf(q)
		if errors.Is(a.Err, model.ErrMemberIDRequired) {
			c.member = a.MemberID
		}
		if a.Err != nil {
			return
		}
		c.member, c.generation, c.leader, c.others = a.MemberID, a.Generation, a.Leader == a.MemberID && !a.SkipAssignment, a.Members
		if c.leader && len(a.Members) == 0 && w.m.groups[c.group].static[c.instance] == nil {
			w.t.Fatalf("leader %q is not told who the members are", c.member)
		}
	case Synced:
		if a.Err != nil {
			return
		}
		s := q.(*Sync)
		who := s.MemberID
		if i := strings.IndexByte(who, '-'); who[0] == 'i' {
			who = who[:i] // of a static member: what its instance was given
		}
		if string(a.Assignment) != "" && !slices.Contains(w.assigned[fmt.Sprint(s.Group, s.Generation, who)], string(a.Assignment)) {
			w.t.Fatalf("member %q of generation %d gets %q", s.MemberID, s.Generation, a.Assignment)
		}
	case Done:
		d, ok := q.(*Delete)
		for key := range w.offsets {
			if ok && a.Err == nil && strings.HasPrefix(key, d.Group+" ") {
				w.t.Fatalf("group %s is deleted, and has an offset for %s", d.Group, key)
			}
		}
	case Committed:
		if a.Err != nil {
			return
		}
		for i, o := range q.(*Commit).Offsets {
			if a.Offsets[i] == nil && !w.holds(q.(*Commit).Group, o) {
				w.t.Fatalf("commit %+v is acknowledged and was never in the log", o)
			}
		}
	case Fetched:
		for _, o := range a.Offsets {
			key := fmt.Sprint(q.(*FetchOffsets).Group, " ", o.TopicPartition)
			if was, ok := w.offsets[key]; ok != (o.Offset >= 0) || ok && was != strconv.FormatInt(o.Offset, 10) {
				w.t.Fatalf("%s is shown as %d, the log has %q", key, o.Offset, was)
			}
		}
	}
}

// holds reports whether an offset has come into the log at any time.
func (w *world) holds(group string, o model.GroupOffset) bool {
	key := string(offsetKey(group, o.TopicPartition))
	return slices.ContainsFunc(w.log, func(r Record) bool {
		if string(r.Key) != key || r.Value == nil {
			return false
		}
		c, err := decodeOffset(r.Value)
		return err == nil && c.offset == o.Offset
	})
}

func (w *world) clientOf(q Input) *client {
	j := q.(*Join)
	for _, c := range w.clients {
		if c.group == j.Group && c.instance == j.InstanceID && (c.member == j.MemberID || j.MemberID == "") {
			return c
		}
	}
	return &client{}
}

// answer answers an open write, in any order; what is answered up to the first that is
// not is in the log.
func (w *world) answer(i int, err error) {
	o := w.open[i]
	o.answered, o.err = true, err
	for len(w.open) > 0 && w.open[0].answered {
		w.apply(w.open[0].err == nil, w.open[0].Records)
		w.open = w.open[1:]
	}
	w.step(&Written{Gen: o.Gen, ID: o.ID, Err: err})
}

func (w *world) apply(landed bool, records []Record) {
	if !landed {
		return
	}
	w.log = append(w.log, records...)
	for _, r := range records {
		if r.Key[1] == keyGroup {
			continue
		}
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(r.Key); err != nil {
			w.t.Fatal(err)
		}
		key := fmt.Sprint(k.Group, " ", model.TopicPartition{Topic: k.Topic, Partition: k.Partition})
		if r.Value == nil {
			delete(w.offsets, key)
			continue
		}
		c, err := decodeOffset(r.Value)
		if err != nil {
			w.t.Fatal(err)
		}
		w.offsets[key] = strconv.FormatInt(c.offset, 10)
	}
}

// reload is a crash: of the writes under way any may have landed, in their order.
func (w *world) reload() {
	for _, o := range w.open {
		w.apply(o.answered && o.err == nil || !o.answered && rapid.Bool().Draw(w.t, "landed"), o.Records)
	}
	w.open = nil
	clear(w.generations)
	w.step(&Lead{Epoch: w.m.epoch + 1})
	if len(w.answered) != len(w.requests) {
		w.t.Fatal("somebody waits for a machine that loads")
	}
	w.refused(model.ErrCoordinatorLoading)
	for rapid.IntRange(0, 3).Draw(w.t, "loading") == 0 {
		w.step(&Replay{Gen: w.m.gen, Records: w.log})
		w.step(&Loaded{Gen: w.m.gen, Err: model.ErrStorage})
		w.refused(model.ErrCoordinatorLoading)
		w.pass(reloadMax)
	}
	at := rapid.IntRange(0, len(w.log)).Draw(w.t, "chunk")
	w.step(&Replay{Gen: w.m.gen, Records: w.log[:at]})
	w.step(&Replay{Gen: w.m.gen, Records: w.log[at:]})
	w.step(&Loaded{Gen: w.m.gen})
}

// pass lets time pass and fires the timer when it is due.
func (w *world) pass(by time.Duration) {
	end := w.now.Add(by)
	for !w.timer.IsZero() && !w.timer.After(end) {
		if w.timer.After(w.now) {
			w.now = w.timer
		}
		w.timer = time.Time{}
		w.step(&Fired{})
	}
	w.now = end
}

// check looks at the machine from inside, and at a second one that has the log alone.
func (w *world) check() {
	w.checkMemory()
	if w.m.phase != phaseServing || w.calm {
		return
	}
	second := New(w.m.settings, w.newID, Memory{})
	var out Effects
	second.Step(w.now, &Lead{Epoch: 1}, &out)
	second.Step(w.now, &Replay{Gen: second.gen, Records: w.log}, &out)
	w.checkOffsets(w.m)
	w.checkOffsets(second)
	for _, n := range out.Notices {
		w.t.Fatalf("notice %v", n)
	}
	for id, g := range w.m.groups {
		w.checkGroup(g)
		if g.generation < w.generations[g] {
			w.t.Fatalf("group %s goes back from generation %d to %d", id, w.generations[g], g.generation)
		}
		w.generations[g] = g.generation
		settled := g.writes == 0 && !g.behind && (g.state == model.GroupStable || g.state == model.GroupEmpty && g.recorded)
		if !settled {
			continue
		}
		other, ok := second.groups[id]
		if !ok || shape(other) != shape(g) {
			w.t.Fatalf("group %s is\n%s\nand would be loaded as\n%s", id, shape(g), shape(other))
		}
	}
}

// shape is what must survive a reload.
func shape(g *group) string {
	if g == nil {
		return "nothing"
	}
	s := fmt.Sprintf("%s %d %s %q %q", g.state, g.generation, g.protocolType, g.protocol, g.leader)
	for _, mem := range g.members {
		s += fmt.Sprintf(" %s@%s %q %q %s", mem.id, mem.instance, mem.assignment, mem.metadata(g.protocol), mem.session)
	}
	return s
}

// checkOffsets compares with an own reading of the log.
func (w *world) checkOffsets(m *Machine) {
	have := map[string]string{}
	for id, g := range m.groups {
		for key, c := range g.offsets {
			have[fmt.Sprint(id, " ", key)] = strconv.FormatInt(c.offset, 10)
		}
	}
	if !maps.Equal(have, w.offsets) {
		w.t.Fatalf("the machine has %v, the log %v", have, w.offsets)
	}
}

// checkGroup checks what is counted.
func (w *world) checkGroup(g *group) {
	joining, unsynced, support, instances := 0, 0, map[string]int{}, map[string]*member{}
	for _, mem := range g.members {
		if mem.join.waits {
			joining++
		}
		if g.settling() && !mem.synced {
			unsynced++
		}
		for _, p := range mem.protocols {
			support[p.Name]++
		}
		if mem.instance != "" {
			if instances[mem.instance] != nil {
				w.t.Fatalf("instance %s has two members", mem.instance)
			}
			instances[mem.instance] = mem
		}
		if g.byID[mem.id] != mem || mem.sync.waits && g.state != model.GroupCompletingRebalance {
			w.t.Fatalf("member %s", mem.id)
		}
		if mem.alarm.due.IsZero() && !mem.join.waits && !mem.sync.waits {
			w.t.Fatalf("member %s has no session", mem.id)
		}
	}
	writes, underWay := 0, map[model.TopicPartition]int{}
	for _, q := range w.m.writes.queue {
		if q.group != g {
			continue
		}
		writes++
		var keys []model.TopicPartition
		switch o := q.outcome.(type) {
		case *commitment:
			keys = o.keys
		case *removal:
			keys = o.keys
		}
		for _, key := range keys {
			underWay[key]++
		}
	}
	switch {
	case joining != g.joining, g.settling() && unsynced != g.unsynced, !maps.Equal(support, g.support), !maps.Equal(instances, g.static),
		len(g.byID) != len(g.members), writes != g.writes, !maps.Equal(underWay, g.underWay) && len(underWay)+len(g.underWay) > 0:
		w.t.Fatalf("group %+v", *g)
	case (g.state == model.GroupEmpty) != (len(g.members) == 0) && g.state != model.GroupPreparingRebalance:
		w.t.Fatalf("group %s is %s with %d members", g.id, g.state, len(g.members))
	case len(g.members) > w.m.settings.SizeMax && g.settling():
		w.t.Fatalf("group %s has %d members", g.id, len(g.members))
	case len(g.members) > 0 && g.byID[g.leader] == nil:
		w.t.Fatalf("group %s has leader %q", g.id, g.leader)
	}
}
