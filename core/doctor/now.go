package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// now are the findings of what does not work as things are.
func (v *view) now() []Finding {
	var out []Finding
	if v.Quorum.Silent != "" {
		out = append(out, Finding{ID: "no-controller", Severity: Critical, Subject: Subject{Kind: "quorum"},
			What: "no active controller answers: " + v.Quorum.Silent,
			Why:  "leaders and in-sync replicas do not change, so that the next death stops what it leads, and topics cannot be made",
			Do:   "start the controllers that are down, until more than half of the voters reach each other", Command: v.command("cluster status")})
	}
	leaderless := v.partitions(func(_ *Topic, p *Partition) bool { return !v.serves(p) })
	if leaderless != nil {
		out = append(out, Finding{ID: "leaderless", Severity: Critical, Subject: Subject{Kind: "cluster"}, Partitions: leaderless,
			What: fmt.Sprintf("%d of %s %s no leader: %s", leaderless.Count(), counted(v.total, "partition"), verb(leaderless.Count(), "has", "have"), leaderless),
			Why:  "they can be neither read nor written",
			Do:   v.missing(leaderless), Command: v.command("topic describe " + leaderless[0].Topic)})
	}
	if groups := v.groupsIn(leaderless); groups != nil {
		out = append(out, Finding{ID: "group-without-coordinator", Severity: Critical, Subject: Subject{Kind: "cluster"}, Groups: groups,
			What: fmt.Sprintf("%s %s no coordinator: %s", counted(len(groups), "group"), verb(len(groups), "has", "have"), names(groups)),
			Why:  "their partitions of " + offsetsTopic + " have no leader, so that consumers cannot join and cannot commit",
			Do:   v.missing(only(leaderless, offsetsTopic)), Command: v.command("topic describe " + offsetsTopic)})
	}
	refuse := v.partitions(func(t *Topic, p *Partition) bool { return v.serves(p) && !v.takes(t, p) })
	if refuse != nil {
		what, why := v.refusal(refuse)
		f := Finding{ID: "under-min-isr", Severity: Critical, Subject: Subject{Kind: "cluster"}, Partitions: refuse, Groups: v.groupsIn(refuse),
			What: fmt.Sprintf("%d of %s %s: %s", refuse.Count(), counted(v.total, "partition"), what, refuse), Why: why,
			Do: "start the brokers that have the other replicas, and wait until they are in sync", Command: v.command("topic describe " + refuse[0].Topic)}
		if f.Groups != nil {
			f.Why += fmt.Sprintf("; %s cannot commit: %s", counted(len(f.Groups), "group"), names(f.Groups))
		}
		out = append(out, f)
	}
	for _, id := range v.ids {
		out = append(out, v.ofBroker(v.state[id])...)
	}
	return append(out, v.behind()...)
}

// refusal says how these partitions take no writes with acks=all, and why.
func (v *view) refusal(all Partitions) (what, why string) {
	few, dead := false, false
	v.each(all, func(t *Topic, p *Partition) {
		under := len(p.ISR) < minISR(t, p)
		few, dead = few || under, dead || !under
	})
	one := all.Count() == 1
	refuse, hang := "refuse writes with acks=all", "do not answer writes with acks=all"
	if one {
		refuse, hang = "refuses writes with acks=all", "does not answer writes with acks=all"
	}
	const tooFew, held = "fewer replicas are in sync than min.insync.replicas asks for", "a replica that counts as in sync is dead, and writes wait for it until it is taken out"
	switch {
	case few && dead:
		return refuse + ", or do not answer them", "of some " + tooFew + "; of others " + held
	case dead:
		return hang, held
	}
	return refuse, tooFew
}

// missing says which brokers would have to come back for these partitions to be led.
func (v *view) missing(all Partitions) string {
	var from []int32
	v.each(all, func(_ *Topic, p *Partition) {
		for _, r := range whole(p) {
			if !v.alive(r) && !slices.Contains(from, r) {
				from = append(from, r)
			}
		}
	})
	if len(from) == 0 {
		return "wait a moment, as for an election, and look again"
	}
	return "start what has everything of them again: broker " + numbers(from)
}

// numbers are IDs in text, in order.
func numbers(of []int32) string {
	var list []string
	for _, id := range slices.Sorted(slices.Values(of)) {
		list = append(list, number(id))
	}
	return strings.Join(list, ", ")
}

// ofBroker are the findings about one broker.
func (v *view) ofBroker(b *Broker) []Finding {
	who := Subject{"broker", number(b.ID)}
	has := v.partitions(func(_ *Topic, p *Partition) bool { return slices.Contains(p.Replicas, b.ID) })
	on := "no partition has a replica on it"
	if has != nil {
		on = fmt.Sprintf("%d of %s %s a replica on it: %s", has.Count(), counted(v.total, "partition"), verb(has.Count(), "has", "have"), has)
	}
	at := fmt.Sprintf("%s:%d", b.Host, b.Port)
	switch {
	case b.State == Fenced, b.State == Unregistered:
		f := Finding{ID: "broker-dead", Severity: High, Subject: who, Partitions: has,
			What: fmt.Sprintf("broker %d is %s; %s", b.ID, b.State, on),
			Why:  "what it has is one death nearer to being stopped or lost",
			// No command that takes the broker away: what it has may be wanted still.
			Do:      "start it again; only where it never comes back, start another one and decommission it, after which its data are of no use",
			Command: v.command("cluster status")}
		if b.State == Unregistered { // nor can it be decommissioned
			f.Do = "start it again; or reassign what it has to others"
		}
		return []Finding{f}
	case b.State == Stopping:
		return []Finding{{ID: "broker-stopping", Severity: Warning, Subject: who, Partitions: has,
			What: fmt.Sprintf("broker %d is stopping; %s", b.ID, on), Why: "the others are about to be without it",
			Do: "wait until it is back", Command: v.command("cluster status")}}
	case b.Reached == No:
		return []Finding{{ID: "broker-unreachable", Severity: High, Subject: who, Partitions: has,
			What: fmt.Sprintf("broker %d tells clients to dial %s, which does not answer here: %s", b.ID, at, b.Unreached),
			Why:  "clients are told to dial this for what the broker leads; where it does not answer them either, they time out",
			Do:   "look whether the broker lives, whether advertised.listeners is what clients can dial, and whether something is in between", Command: v.command("cluster status")}}
	case b.Astray:
		return []Finding{{ID: "advertised-astray", Severity: High, Subject: who, Partitions: has,
			What: fmt.Sprintf("broker %d tells clients to dial %s, which is their own machine", b.ID, at),
			Why:  "clients on other machines connect to the bootstrap address, and then dial themselves",
			Do:   "set advertised.listeners to a name that clients can dial, and restart the broker", Command: v.command("cluster status")}}
	}
	return nil
}

// behind is the finding of replicas that are not in sync although their brokers serve.
func (v *view) behind() []Finding {
	all := v.partitions(func(_ *Topic, p *Partition) bool {
		return slices.ContainsFunc(without(present(p), p.ISR), v.alive)
	})
	if all == nil {
		return nil
	}
	return []Finding{{ID: "replicas-behind", Severity: Warning, Subject: Subject{Kind: "cluster"}, Partitions: all,
		What: fmt.Sprintf("%d of %s %s a replica that is not in sync, although its broker serves: %s", all.Count(), counted(v.total, "partition"), verb(all.Count(), "has", "have"), all),
		Why:  "a replica that is not in sync does not count when another one dies",
		Do:   "wait while it catches up; if it does not, look at its broker's log, disk and network", Command: v.command("cluster status")}}
}

// ofQuorum are the findings about the controllers.
func (v *view) ofQuorum() []Finding {
	if !v.Quorum.Known {
		return nil
	}
	var out []Finding
	var fatal []string
	voters := v.sortedVoters()
	for _, c := range voters {
		who := Subject{"controller", number(c.ID)}
		switch {
		case c.Current && v.endsQuorum([]int32{c.ID}):
			fatal = append(fatal, number(c.ID))
		case !c.Current:
			out = append(out, Finding{ID: "voter-silent", Severity: High, Subject: who,
				What: fmt.Sprintf("controller %d votes, and is not heard of", c.ID),
				Why:  "it counts for the majority that is needed, and cannot help to make it",
				Do:   "start it again, or take its vote away", Command: v.command("cluster status")})
		}
		if c.Current && c.Lag > lagMax {
			out = append(out, Finding{ID: "voter-behind", Severity: Warning, Subject: who,
				What: fmt.Sprintf("controller %d lacks %d records of the metadata", c.ID, c.Lag),
				Why:  "it cannot take over before it has them", Do: "look at its disk and network", Command: v.command("cluster status")})
		}
	}
	if fatal != nil {
		out = append(out, Finding{ID: "quorum-breaks", Severity: High, Subject: Subject{Kind: "quorum"},
			What: fmt.Sprintf("the quorum of controllers has %s and does not outlive the death of any of these: %s", counted(len(voters), "voter"), strings.Join(fatal, ", ")),
			Why:  "without a majority of the voters leaders and in-sync replicas do not change: the next death of a broker stops what it leads",
			Do:   "have three voters that are all up, each on a machine of its own", Command: v.command("cluster status")})
	}
	return out
}
