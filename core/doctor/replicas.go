package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// replicasWanted is how many replicas internal topics are to have where nobody says it.
const replicasWanted = 3

// target is how many replicas a partition is to have: of an internal topic of a cluster that
// does not tell, as many as there are brokers for, up to three. 0: not known.
func (v *view) target(t *Topic, p *Partition) int {
	switch {
	case p.Target > 0:
		return p.Target
	case t.Target == 0 && t.Internal:
		return min(replicasWanted, len(v.serving))
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
	below := func(t *Topic, p *Partition) bool { return len(present(p)) < v.target(t, p) }
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
			What: fmt.Sprintf("%s fewer replicas than %s to have: %s", have(some), verb(some.Count(), "it is", "they are"), v.few(some)),
		})
		some = v.partitions(func(t *Topic, p *Partition) bool { return t.Internal == k.internal && one(t, p) })
		add(Finding{ID: k.prefix + "replication-factor-one", Severity: High, Partitions: some,
			What: fmt.Sprintf("%s one replica only: %s", have(some), some),
			Why:  "when its broker dies they stop, and with its disk all their records are lost",
		})
	}
	even := v.partitions(func(t *Topic, p *Partition) bool { n := len(present(p)); return n > 1 && minISR(t, p) >= n })
	add(Finding{ID: "replication-factor-is-min-isr", Severity: High, Partitions: even,
		What: fmt.Sprintf("%s to have all replicas in sync for acks=all: %s", have(even), even),
		Why:  "the death of any one broker that has a replica makes them refuse writes",
	})
	weak := v.partitions(func(t *Topic, p *Partition) bool { return t.MinISR == 1 && len(present(p)) > 1 })
	if weak != nil {
		add(Finding{ID: "min-isr-one", Severity: Warning, Partitions: weak,
			What: fmt.Sprintf("min.insync.replicas is 1 for %s with more replicas: %s", counted(weak.Count(), "partition"), weak),
			Why:  "once the others have left the ISR, acks=all is answered when one replica alone has the record: it is lost with that one",
			Do:   "set min.insync.replicas to 2, for all topics of this list", Command: v.command("topic alter " + weak[0].Topic + " --config min.insync.replicas=2")})
	}
	unclean := v.partitions(func(t *Topic, _ *Partition) bool { return t.Unclean == Yes })
	if unclean != nil {
		add(Finding{ID: "unclean-election", Severity: Warning, Partitions: unclean,
			What: fmt.Sprintf("unclean elections are on for %s: %s", counted(unclean.Count(), "partition"), unclean),
			Why:  "a replica that lacks acknowledged records may come to lead, and then they are lost",
			Do:   "set unclean.leader.election.enable to false, for all topics of this list", Command: v.command("topic alter " + unclean[0].Topic + " --config unclean.leader.election.enable=false")})
	}
	return out
}

// have begins a sentence about what partitions have.
func have(all Partitions) string {
	return counted(all.Count(), "partition") + " " + verb(all.Count(), "has", "have")
}

// subject is the one topic that all are of, or the cluster.
func (v *view) subject(all Partitions) Subject {
	if len(all) == 1 {
		return Subject{"topic", all[0].Topic}
	}
	return Subject{Kind: "cluster"}
}

// few names partitions, and how many replicas that of each topic which has fewest has, and is
// to have.
func (v *view) few(all Partitions) string {
	var out []string
	for _, a := range all[:min(topicsNamed, len(all))] {
		least, want := -1, 0
		v.each(Partitions{a}, func(t *Topic, p *Partition) {
			if n := len(present(p)); least < 0 || n < least {
				least, want = n, v.target(t, p)
			}
		})
		out = append(out, fmt.Sprintf("%s, %d of %d", Partitions{a}, least, want))
	}
	return andMore(out, len(all)-topicsNamed, "topics")
}

// remedy says what it takes for these partitions to outlive a death, and by which command.
func (v *view) remedy(all Partitions) (do, command string) {
	serving, want, adding := len(v.serving), 0, 0
	var dead []int32
	var moved, busy, behind, chosen bool
	v.each(all, func(t *Topic, p *Partition) {
		dead = append(dead, without(v.dead(p), dead)...)
		behind = behind || len(without(present(p), p.ISR)) > 0
		chosen = chosen || isChosen(t, p)
		switch wanted := v.wanted(t, p); {
		case len(p.Adding) > 0:
			adding++
		case len(present(p)) < wanted:
			want = max(want, wanted)
			moved = moved || v.moves[place{t.Name, p.Index}]
			busy = busy || wanted <= serving
		}
	})
	var steps []string
	step := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	command = v.command("cluster status")
	switch {
	case moved && want > serving:
		step("give them replicas on the other brokers, and start more: %d serve, and %d are needed", serving, want)
	case moved:
		step("give them replicas on the other brokers, and wait until those are in sync")
	case want > serving:
		step("start more brokers: %d serve, and %d are needed; then give them replicas there", serving, want)
	}
	if moved {
		command = v.command("doctor --fix")
	}
	if n := all.Count(); adding > 0 && adding == n {
		step("wait: %s being given more replicas", verb(n, "it is", "they are"))
	} else if adding > 0 {
		step("wait for those that are being given more replicas, %d of %d", adding, n)
	}
	switch {
	case len(dead) > 0 && !slices.ContainsFunc(dead, func(id int32) bool { return v.state[id].State != Fenced }):
		step("start broker %s again, or decommission %s", numbers(dead), verb(len(dead), "it", "them"))
	case len(dead) > 0:
		step("start broker %s again", numbers(dead))
	case len(steps) == 0 && busy:
		step("wait until they have leaders, and nothing of them is being reassigned")
	case len(steps) == 0 && behind:
		step("wait until the replicas that are behind are in sync")
	}
	switch {
	case len(steps) > 0:
		return strings.Join(steps, "; "), command
	case chosen:
		return "give them more replicas again: an operator has chosen how many they have", v.command("topic describe " + all[0].Topic)
	}
	return "give each of them one replica more than it asks for in sync, and in more racks", v.command("topic describe " + all[0].Topic)
}

// isChosen says whether an operator has chosen fewer replicas than the topic's for a partition.
func isChosen(t *Topic, p *Partition) bool { return p.Target > 0 && p.Target < t.Target }

// wanted is how many replicas a partition would have if it were well: what an operator chose, or
// its topic's target, but three where that is one, and more than have to be in sync.
func (v *view) wanted(t *Topic, p *Partition) int {
	want, n := v.target(t, p), len(present(p))
	switch {
	case isChosen(t, p):
		return want
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
	serving := v.serving
	switch len(serving) {
	case 1:
		out = append(out, Finding{ID: "one-broker", Severity: Warning, Subject: Subject{Kind: "cluster"},
			What: "only one broker serves", Why: "its death stops everything, and the loss of its disk loses everything",
			Do: "start two more brokers", Command: v.command("cluster status")})
	case 2:
		why := "after one death nothing is replicated"
		if v.Quorum.Known && len(v.Quorum.Voters) == 2 {
			why += "; and two controllers are no better than one, since both are needed for a majority"
		}
		out = append(out, Finding{ID: "two-brokers", Severity: Warning, Subject: Subject{Kind: "cluster"},
			What: "only two brokers serve", Why: why,
			Do: "start a third broker", Command: v.command("cluster status")})
	}
	racks, all := v.racks()
	if len(racks) == 1 && all && len(serving) > 1 {
		name := slices.Collect(maps.Keys(racks))[0]
		out = append(out, Finding{ID: "one-rack", Severity: Warning, Subject: Subject{"rack", name},
			What: fmt.Sprintf("all brokers that serve are in rack %s", name), Why: "they may all die at once",
			Do: "start brokers in other racks, or leave broker.rack out where racks mean nothing", Command: v.command("cluster status")})
	}
	t := v.byName[offsetsTopic]
	if t == nil || len(t.Partitions) < 2 || len(serving) < 2 {
		return out
	}
	return append(out, v.ofOffsets(t, racks)...)
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
	var all Partitions
	fix := slices.ContainsFunc(v.fixes.Elections, func(e Election) bool { return e.Topic == t.Name })
	for i := range t.Partitions {
		all.add(t, &t.Partitions[i])
		fix = fix || v.moves[place{t.Name, t.Partitions[i].Index}]
	}
	or := func(do string) (string, string) {
		if fix {
			return do, v.command("doctor --fix")
		}
		return do + ", when its replicas are in sync and on brokers that serve", v.command("topic describe " + t.Name)
	}
	who := Subject{"topic", t.Name}
	if first := t.Partitions[0].Leader; len(leaders) == 1 && first >= 0 {
		do, command := or("have others lead their share")
		out = append(out, Finding{ID: "offsets-one-leader", Severity: Warning, Subject: who, Partitions: all,
			What: fmt.Sprintf("broker %d leads all %d partitions of %s", first, len(t.Partitions), t.Name),
			Why:  "it is the coordinator of every group: its death interrupts all of them at once, and all their load is on it",
			Do:   do, Command: command})
	}
	if len(racks) > 1 && len(in) == 1 && !in[""] {
		do, command := or("give it replicas in other racks")
		out = append(out, Finding{ID: "offsets-one-rack", Severity: Warning, Subject: who, Partitions: all,
			What: fmt.Sprintf("all replicas of %s are in one rack", t.Name), Why: "with that rack every group stops",
			Do: do, Command: command})
	}
	return out
}
