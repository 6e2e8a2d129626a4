package controller

import (
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
)

// electionMode says whether a topic's unclean.leader.election.enable counts.
type electionMode bool

const (
	cleanOnly    electionMode = false
	asConfigured electionMode = true
)

// alive says whether a broker serves, and goes on to: it may join an ISR, and lead.
func (d *decision) alive(n model.NodeID) bool {
	b, ok := d.img.Broker(n)
	return ok && !b.Fenced && !b.ShuttingDown
}

// eligible says whether a replica may be in a new ISR, and lead: its broker is alive,
// and the directory that holds it serves. (KIP-841, KIP-858)
func (d *decision) eligible(p *image.Partition, n model.NodeID) bool {
	return d.alive(n) && d.online(p, n)
}

// online says whether the directory of a replica is one of its broker's that serve.
func (d *decision) online(p *image.Partition, n model.NodeID) bool {
	b, ok := d.img.Broker(n)
	i := slices.Index(p.Replicas, n)
	if !ok || i < 0 {
		return false
	}
	dir := p.Directories[i]
	return dir.IsZero() || slices.Contains(b.Directories, dir) && !slices.Contains(b.Offline, dir)
}

// missing says whether a broker is registered without the directory of its replica, and
// with others: the replica is gone.
func (d *decision) missing(p *image.Partition, n model.NodeID) bool {
	b, ok := d.img.Broker(n)
	dir := p.Directories[slices.Index(p.Replicas, n)]
	return ok && len(b.Directories) > 0 && !dir.IsZero() && !slices.Contains(b.Directories, dir)
}

// serves says whether a replica serves still: it may lead on, while nobody else can.
func (d *decision) serves(p *image.Partition, n model.NodeID) bool {
	b, ok := d.img.Broker(n)
	return ok && !b.Fenced && d.online(p, n)
}

// settings are a topic's: resolved once for all of its partitions.
func (d *decision) settings(t *image.Topic) topicconfig.Config {
	if d.resolvedFor == t.ID && d.resolvedIn == d.img {
		return d.resolved
	}
	c, err := d.img.TopicConfig(t.Name, model.NoNode, d.cfg.TopicDefaults)
	if err != nil {
		// Whoever cannot read them goes by what is safe, for as long as it lasts.
		c = topicconfig.Config{MinISR: 1}
	}
	d.resolvedFor, d.resolvedIn, d.resolved = t.ID, d.img, c
	return c
}

// minISR is what the leader of a partition goes by of which so many replicas count.
func (d *decision) minISR(t *image.Topic, replicas int) int {
	return image.EffectiveMinISR(d.settings(t).MinISR, replicas, int(t.ReplicationFactorTarget))
}

// edit is a partition on its way from one registration to the next.
type edit struct {
	d    *decision
	t    *image.Topic
	at   model.Partition
	was  *image.Partition
	next image.Partition
	// lost are members of the ISR and the ELR whose logs may lack what they had: they
	// can be asked. Those that are gone cannot.
	lost, gone []model.NodeID
	// back are members of the ISR and the ELR that begin another life with all that they had.
	back []model.NodeID
	// settled: the ISR is what its leader asked for, so that its members have all that
	// was committed, whatever others have lost before.
	settled bool
	mode    electionMode
	// unclean: whoever is alive is to lead, whatever the topic's setting.
	unclean bool
	// preferred: the first of the assignment leads, if it may.
	preferred bool
	// raise: the partition epoch is to rise even where nothing else changes.
	raise bool
	// renew: the leader epoch is to rise even where the leader stays.
	renew bool
}

func (d *decision) edit(t *image.Topic, index int32) *edit {
	p := &t.Partitions[index]
	return &edit{d: d, t: t, at: model.Partition{Topic: t.ID, Index: index}, was: p, next: *p}
}

// leave takes brokers out of the ISR.
func (e *edit) leave(out func(model.NodeID) bool) {
	e.next.ISR = without(e.next.ISR, out)
}

// finish elects, keeps the ELR, and gives the record of what has changed, or nil.
// Only the last of those who have everything stays in the ISR when it is gone itself: it
// alone is known to have it.
func (e *edit) finish() *image.PartitionChangeRecord {
	e.completeReassignment()
	e.keepLast()
	leader, clean := e.elect()
	if !clean {
		e.next.ELR, e.next.LastKnownELR = nil, nil
		e.loses(-1, true)
		e.d.tellUnclean(e.t, e.at.Index)
	} else {
		e.keepELR()
	}
	if e.renew && leader == e.was.Leader {
		e.loses(-1, false) // nobody else is known to have more
	}
	e.next.Leader = leader
	e.replaceDirectories()
	return e.record()
}

// replaceDirectories has replicas made anew whose directory is gone, since others have
// what they had.
func (e *edit) replaceDirectories() {
	p := &e.next
	for i, n := range p.Replicas {
		if !e.d.missing(p, n) || slices.Contains(p.ISR, n) || slices.Contains(p.ELR, n) || slices.Contains(p.LastKnownELR, n) {
			continue
		}
		p.Directories = slices.Clone(p.Directories)
		p.Directories[i] = e.d.defaultDirectory(n)
	}
}

// complete are the replicas that have all that was committed, in the order of the
// assignment.
func (e *edit) complete() []model.NodeID {
	return without(e.next.Replicas, func(n model.NodeID) bool {
		return !slices.Contains(e.was.ISR, n) && !slices.Contains(e.was.ELR, n) ||
			slices.Contains(e.lost, n) || slices.Contains(e.gone, n)
	})
}

// keepLast puts those back who must not leave the ISR.
func (e *edit) keepLast() {
	if len(e.next.ISR) > 0 || len(e.was.ISR) == 0 {
		return
	}
	known := e.known()
	switch whole := e.complete(); {
	case len(whole) > 0:
		// All of them went at once: whichever comes back has everything.
		e.next.ISR = without(e.was.ISR, func(n model.NodeID) bool { return !slices.Contains(whole, n) })
	case len(known) > 1 || len(known) == 1 && len(e.lost) == 0:
		// Those that may have lost something are asked how long their logs are.
	default:
		e.next.ISR, e.lost = e.was.ISR[:1], nil
	}
}

// known are those that may have lost what they had, and can be asked.
func (e *edit) known() []model.NodeID {
	return without(e.next.Replicas, func(n model.NodeID) bool {
		return !slices.Contains(e.was.LastKnownELR, n) && !slices.Contains(e.lost, n) || slices.Contains(e.gone, n)
	})
}

// elect is Kafka's election: the leader stays while it may; else the first of the
// assignment that is in sync and eligible; else the first of the ELR (KIP-966). A leader
// that shuts down stays while there is none. Where all of them may have lost something, it
// is the one of the longest log. Then nobody leads, unless unclean election
// is on: then the first that is eligible, alone in the ISR, or at the operator's word one
// that begins with nothing, since its directory is gone. It says whether the leader
// has all that was committed.
func (e *edit) elect() (leader model.NodeID, clean bool) {
	p, d := &e.next, e.d
	may := func(n model.NodeID) bool { return d.eligible(p, n) }
	inSync := func(n model.NodeID) bool { return slices.Contains(p.ISR, n) && may(n) }
	whole := e.complete()
	lead := func(n model.NodeID, isr []model.NodeID) (model.NodeID, bool) {
		p.ISR = isr
		return n, true
	}
	live := without(p.ISR, func(n model.NodeID) bool { return n != e.was.Leader && !may(n) })
	if inSync(e.was.Leader) && !e.preferred {
		return lead(e.was.Leader, live)
	}
	if i := slices.IndexFunc(p.Replicas, inSync); i >= 0 {
		return lead(p.Replicas[i], without(p.ISR, func(n model.NodeID) bool { return !may(n) }))
	}
	if i := slices.IndexFunc(whole, may); i >= 0 {
		return lead(whole[i], whole[i:i+1])
	}
	if n := e.was.Leader; slices.Contains(p.ISR, n) && d.serves(p, n) {
		return lead(n, live)
	}
	if n, ok := e.longest(); ok {
		return lead(n, []model.NodeID{n})
	}
	if i := slices.IndexFunc(p.Replicas, may); i >= 0 && (e.unclean || e.mode == asConfigured && d.settings(e.t).UncleanElection) {
		p.ISR = []model.NodeID{p.Replicas[i]}
		return p.Replicas[i], false
	}
	if i := slices.IndexFunc(p.Replicas, func(n model.NodeID) bool { return d.alive(n) && d.missing(p, n) }); i >= 0 && e.unclean {
		p.Directories = slices.Clone(p.Directories)
		p.Directories[i] = d.defaultDirectory(p.Replicas[i])
		p.ISR = []model.NodeID{p.Replicas[i]}
		return p.Replicas[i], false
	}
	return model.NoNode, true
}

// keepELR keeps who has left the ISR while it is below its minimum: nothing is
// committed then, so that they have everything. (KIP-966)
func (e *edit) keepELR() {
	p := &e.next
	inSync := func(n model.NodeID) bool { return slices.Contains(p.ISR, n) }
	below := len(p.ISR) < len(p.Replicas) && len(p.ISR) < e.d.minISR(e.t, p.Counted())
	p.ELR = nil
	if below {
		p.ELR = without(e.complete(), inSync)
	}
	var known []model.NodeID
	if below || !e.settled {
		known = e.known()
	}
	if !e.settled {
		known = append(known, e.notSettled()...)
	}
	p.LastKnownELR = without(p.Replicas, func(n model.NodeID) bool {
		return !slices.Contains(known, n) || inSync(n) || slices.Contains(p.ELR, n)
	})
	if len(p.ISR)+len(p.ELR)+len(p.LastKnownELR) == 0 {
		// Nobody is left who could be asked: the operator is to see who had it.
		p.LastKnownELR = without(p.Replicas, func(n model.NodeID) bool {
			return !slices.Contains(e.was.LastKnownELR, n) && !slices.Contains(e.was.ELR, n)
		})
	}
}

// notSettled are those that had everything when they left, without a word of the leader
// since: those that begin another life, and the ELR where the minimum was lowered. Who is
// in the ISR may have lost its log by now, and nobody has noticed yet: then they are asked
// too.
func (e *edit) notSettled() []model.NodeID {
	return append(slices.Clone(e.back), without(e.complete(), func(n model.NodeID) bool { return !slices.Contains(e.was.ELR, n) })...)
}

// record is the difference, or nil where there is none.
func (e *edit) record() *image.PartitionChangeRecord {
	r := &image.PartitionChangeRecord{Partition: e.at}
	was, next := e.was, &e.next
	changed := e.raise
	for _, f := range []struct {
		to        *[]model.NodeID
		was, next []model.NodeID
	}{
		{&r.Replicas, was.Replicas, next.Replicas}, {&r.ISR, was.ISR, next.ISR}, {&r.ELR, was.ELR, next.ELR},
		{&r.LastKnownELR, was.LastKnownELR, next.LastKnownELR}, {&r.Adding, was.Adding, next.Adding}, {&r.Removing, was.Removing, next.Removing},
	} {
		if !slices.Equal(f.was, f.next) {
			*f.to, changed = append([]model.NodeID{}, f.next...), true
		}
	}
	if !slices.Equal(was.Directories, next.Directories) {
		r.Directories, changed = next.Directories, true
	}
	if next.Leader != was.Leader || e.renew {
		r.LeaderChange, r.Leader, changed = true, next.Leader, true
	}
	if next.Loss != was.Loss {
		r.Loss, changed = next.Loss, true
	}
	if !changed {
		return nil
	}
	return r
}

// loses notes that the leader may lack what was acknowledged, from an offset on.
func (e *edit) loses(from int64, unclean bool) {
	e.next.Loss = &image.Loss{Epoch: e.was.LeaderEpoch + 1, From: from, Unclean: unclean, At: e.d.soft.last.UnixMilli()}
}

// without is the nodes that are not out, in a list of its own, or nil.
func without(nodes []model.NodeID, out func(model.NodeID) bool) []model.NodeID {
	var left []model.NodeID
	for _, n := range nodes {
		if !out(n) {
			left = append(left, n)
		}
	}
	return left
}

// eachPartition asks decide about each partition, and emits what it makes of them.
// Decide answers nil for one that is left as it is.
func (d *decision) eachPartition(decide func(*image.Topic, int32, *image.Partition) *edit) {
	var records []image.Record
	for t := range d.img.Topics() {
		for n := range t.Partitions {
			if e := decide(t, int32(n), &t.Partitions[n]); e != nil {
				if r := e.finish(); r != nil {
					records = append(records, r)
				}
			}
		}
	}
	d.emit(records...)
}

// withoutBrokers takes brokers out of every ISR and gives what they lead to others, after
// they were fenced or have begun to shut down.
func (d *decision) withoutBrokers(ids []model.NodeID, mode electionMode) {
	leaving := func(n model.NodeID) bool { return slices.Contains(ids, n) }
	d.eachPartition(func(t *image.Topic, n int32, p *image.Partition) *edit {
		if !slices.ContainsFunc(p.ISR, leaving) && !leaving(p.Leader) {
			return nil
		}
		e := d.edit(t, n)
		e.mode = mode
		e.leave(leaving)
		return e
	})
}

// electLeaderless elects again where nobody leads, now that a broker serves or a
// setting allows more.
func (d *decision) electLeaderless() {
	d.eachPartition(func(t *image.Topic, n int32, p *image.Partition) *edit {
		if p.Leader != model.NoNode {
			return nil
		}
		e := d.edit(t, n)
		e.mode = asConfigured
		return e
	})
}

// tellUnclean says aloud that records may be lost.
func (d *decision) tellUnclean(t *image.Topic, index int32) {
	for i := range d.notices {
		if n := &d.notices[i]; n.Topic == t.Name && n.Text == uncleanText {
			n.Partitions = append(n.Partitions, index)
			return
		}
	}
	d.tell(Notice{Warn: true, Broker: model.NoNode, Topic: t.Name, Partitions: []int32{index}, Text: uncleanText})
}

const uncleanText = "unclean election: a replica that was not in sync leads, and committed records may be lost"
