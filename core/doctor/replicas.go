package doctor

import (
	"fmt"
	"maps"
	"slices"
)

// replicasWanted is how many replicas internal topics are to have where nobody says it.
const replicasWanted = 3

// target is how many replicas the partitions of a topic are to have: of an internal topic of
// a cluster that does not tell, as many as there are brokers for, up to three. 0: not known.
func (v *view) target(t *Topic) int {
	if t.Target == 0 && t.Internal {
		return min(replicasWanted, len(v.serving()))
	}
	return t.Target
}

// ofReplicas are the findings about how many replicas there are, and what is asked of them.
func (v *view) ofReplicas() []Finding {
	var out []Finding
	add := func(f Finding) {
		if f.Partitions != nil {
			f.Subject = v.subject(f.Partitions)
			if f.Do == "" {
				f.Do, f.Command = v.remedy(f.Partitions)
			}
			out = append(out, f)
		}
	}
	below := func(t *Topic, p *Partition) bool { return len(present(p)) < v.target(t) }
	one := func(t *Topic, p *Partition) bool { return len(present(p)) == 1 && !below(t, p) }
	for _, k := range []struct {
		internal bool
		prefix   string
		why      string
	}{
		{true, "internal-", "who cannot read or write it, as the groups whose coordinator it is, stops with it, whatever replicas the topics have that they read"},
		{false, "", "records are nearer to being stopped, or lost, than those who made the topic asked for"},
	} {
		some := v.partitions(func(t *Topic, p *Partition) bool { return t.Internal == k.internal && below(t, p) })
		add(Finding{ID: k.prefix + "below-target", Severity: High, Partitions: some, Why: k.why,
			What: fmt.Sprintf("%d partitions have fewer replicas than they are to have: %s", some.Count(), v.few(some)),
		})
		some = v.partitions(func(t *Topic, p *Partition) bool { return t.Internal == k.internal && one(t, p) })
		add(Finding{ID: k.prefix + "replication-factor-one", Severity: High, Partitions: some,
			What: fmt.Sprintf("%d partitions have one replica only: %s", some.Count(), some),
			Why:  "when its broker dies they stop, and with its disk all their records are lost",
		})
	}
	even := v.partitions(func(t *Topic, p *Partition) bool { n := len(present(p)); return n > 1 && minISR(t, p) >= n })
	add(Finding{ID: "replication-factor-is-min-isr", Severity: High, Partitions: even,
		What: fmt.Sprintf("%d partitions need all their replicas in sync for acks=all: %s", even.Count(), even),
		Why:  "the death of any one broker that has a replica makes them refuse writes",
	})
	weak := v.partitions(func(t *Topic, p *Partition) bool { return t.MinISR == 1 && len(present(p)) > 1 })
	if weak != nil {
		add(Finding{ID: "min-isr-one", Severity: Warning, Partitions: weak,
			What: fmt.Sprintf("min.insync.replicas is 1 for %d partitions that have more replicas: %s", weak.Count(), weak),
			Why:  "acks=all is answered when one replica alone has the record: it is lost with that one",
			Do:   "set min.insync.replicas to 2, for all topics of this list", Command: v.command("topic alter " + weak[0].Topic + " --config min.insync.replicas=2")})
	}
	unclean := v.partitions(func(t *Topic, _ *Partition) bool { return t.Unclean == Yes })
	if unclean != nil {
		add(Finding{ID: "unclean-election", Severity: Warning, Partitions: unclean,
			What: fmt.Sprintf("unclean elections are on for %d partitions: %s", unclean.Count(), unclean),
			Why:  "a replica that lacks acknowledged records may come to lead, and then they are lost",
			Do:   "set unclean.leader.election.enable to false, for all topics of this list", Command: v.command("topic alter " + unclean[0].Topic + " --config unclean.leader.election.enable=false")})
	}
	return out
}

// subject is the one topic that all are of, or the cluster.
func (v *view) subject(all Partitions) Subject {
	if len(all) == 1 {
		return Subject{"topic", all[0].Topic}
	}
	return Subject{Kind: "cluster"}
}

// few names partitions, and how many replicas those of each topic have and are to have.
func (v *view) few(all Partitions) string {
	var out []string
	for _, a := range all[:min(topicsNamed, len(all))] {
		t := &v.topics[slices.IndexFunc(v.topics, func(t Topic) bool { return t.Name == a.Topic })]
		least := len(t.Partitions[0].Replicas)
		for i := range t.Partitions {
			least = min(least, len(present(&t.Partitions[i])))
		}
		out = append(out, fmt.Sprintf("%s, %d of %d", Partitions{a}, least, v.target(t)))
	}
	return andMore(out, len(all)-topicsNamed, "topics")
}

// remedy says what it takes for these partitions to outlive a death, and by which command.
func (v *view) remedy(all Partitions) (do, command string) {
	serving, short, lack, behind := len(v.serving()), 0, false, false
	v.partitions(func(t *Topic, p *Partition) bool {
		if !all.has(t.Name, p.Index) {
			return false
		}
		n := len(present(p))
		if want := v.wanted(t, p); n < want {
			short = max(short, want)
			lack = lack || n < serving
		}
		behind = behind || len(without(present(p), p.ISR)) > 0
		return false
	})
	switch {
	case lack && short > serving:
		return fmt.Sprintf("give them replicas on the other brokers, and start more: %d serve, and %d are needed", serving, short), v.command("doctor --fix")
	case lack:
		return "give them replicas on the other brokers, and wait until those are in sync", v.command("doctor --fix")
	case short > 0:
		return fmt.Sprintf("start more brokers: %d serve, and %d are needed; then give them replicas there", serving, short), v.command("cluster status")
	case behind:
		return "start the brokers that have the other replicas, and wait until they are in sync", v.command("cluster status")
	}
	return "give each of them one replica more than it asks for in sync, and in more racks", v.command("topic describe " + all[0].Topic)
}

// wanted is how many replicas a partition would have if it were well: its topic's target, but
// three where that is one, and more than have to be in sync.
func (v *view) wanted(t *Topic, p *Partition) int {
	want, n := v.target(t), len(present(p))
	switch {
	case n == 1 && want < 2:
		want = replicasWanted
	case n > 1 && minISR(t, p) >= n:
		want = max(want, n+1)
	}
	if n < want {
		want = max(want, t.MinISR+1)
	}
	return want
}

// ofPlaces are the findings about where brokers, replicas and leaders are.
func (v *view) ofPlaces() []Finding {
	var out []Finding
	serving := v.serving()
	switch len(serving) {
	case 1:
		out = append(out, Finding{ID: "one-broker", Severity: Warning, Subject: Subject{Kind: "cluster"},
			What: "only one broker serves", Why: "its death stops everything, and the loss of its disk loses everything",
			Do: "start two more brokers", Command: v.command("cluster status")})
	case 2:
		out = append(out, Finding{ID: "two-brokers", Severity: Warning, Subject: Subject{Kind: "cluster"},
			What: "only two brokers serve", Why: "after one death nothing is replicated; and two controllers are no better than one, since both are needed for a majority",
			Do: "start a third broker", Command: v.command("cluster status")})
	}
	racks, all := v.racks()
	if len(racks) == 1 && all && len(serving) > 1 {
		name := slices.Collect(maps.Keys(racks))[0]
		out = append(out, Finding{ID: "one-rack", Severity: Warning, Subject: Subject{"rack", name},
			What: fmt.Sprintf("all brokers that serve are in rack %s", name), Why: "they may all die at once",
			Do: "start brokers in other racks, or leave broker.rack out where racks mean nothing", Command: v.command("cluster status")})
	}
	i := slices.IndexFunc(v.topics, func(t Topic) bool { return t.Name == offsetsTopic })
	if i < 0 || len(v.topics[i].Partitions) < 2 || len(serving) < 2 {
		return out
	}
	return append(out, v.ofOffsets(&v.topics[i], racks)...)
}

// ofOffsets are the findings about where groups are kept.
func (v *view) ofOffsets(t *Topic, racks map[string][]int32) []Finding {
	var out []Finding
	leaders, in := make(map[int32]bool), make(map[string]bool)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		leaders[p.Leader] = true
		for _, r := range p.Replicas {
			in[v.state[r].Rack] = true
		}
	}
	all := v.partitions(func(o *Topic, _ *Partition) bool { return o.Name == t.Name })
	who := Subject{"topic", t.Name}
	if first := t.Partitions[0].Leader; len(leaders) == 1 && first >= 0 {
		out = append(out, Finding{ID: "offsets-one-leader", Severity: Warning, Subject: who, Partitions: all,
			What: fmt.Sprintf("broker %d leads all %d partitions of %s", first, len(t.Partitions), t.Name),
			Why:  "it is the coordinator of every group: its death interrupts all of them at once, and all their load is on it",
			Do:   "have others lead their share", Command: v.command("doctor --fix")})
	}
	if len(racks) > 1 && len(in) == 1 && !in[""] {
		out = append(out, Finding{ID: "offsets-one-rack", Severity: Warning, Subject: who, Partitions: all,
			What: fmt.Sprintf("all replicas of %s are in one rack", t.Name), Why: "with that rack every group stops",
			Do: "give it replicas in other racks", Command: v.command("doctor --fix")})
	}
	return out
}
