package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Death is what would happen if somebody died now: what that changes.
type Death struct {
	Subject Subject `json:"subject"`
	Brokers []int32 `json:"brokers,omitempty"` // that would be gone
	// EndsQuorum says that no majority of the voters would be left: no leader would change.
	EndsQuorum bool `json:"ends_quorum"`
	// Stops are partitions that nobody would lead.
	Stops Partitions `json:"stops,omitempty"`
	// RefusesWrites are others that would refuse acks=all, or never answer it.
	RefusesWrites Partitions `json:"refuses_writes,omitempty"`
	// MayRefuseWrites are those that would or would not: min.insync.replicas is not known.
	MayRefuseWrites Partitions `json:"may_refuse_writes,omitempty"`
	// Loses are those of which nobody else has everything: it is gone with the disks.
	Loses Partitions `json:"loses,omitempty"`
	// Unclean are those that would be led by a replica that lacks something.
	Unclean Partitions `json:"unclean,omitempty"`
	// MayBeUnclean are those of Stops that would, if unclean elections are on: that is not known.
	MayBeUnclean Partitions `json:"may_be_unclean,omitempty"`
	// Groups would have no coordinator; Commits could not commit.
	Groups  []string `json:"groups_without_coordinator,omitempty"`
	Commits []string `json:"groups_without_commits,omitempty"`
}

// deaths are those of every broker, rack and controller that serves: a rack of one broker is
// that broker, and one of all of them none that could be outlived.
func (v *view) deaths() []Death {
	var brokers []int32
	for _, id := range v.ids {
		if v.alive(id) {
			brokers = append(brokers, id)
		}
	}
	out := []Death{}
	for _, id := range brokers {
		out = append(out, v.death(Subject{"broker", number(id)}, id))
	}
	racks, _ := v.racks()
	for _, rack := range slices.Sorted(maps.Keys(racks)) {
		if in := racks[rack]; len(in) > 1 && len(in) < len(brokers) {
			out = append(out, v.death(Subject{"rack", rack}, in...))
		}
	}
	for _, c := range v.sortedVoters() {
		if c.Current && v.state[c.ID] == nil {
			out = append(out, v.death(Subject{"controller", number(c.ID)}, c.ID))
		}
	}
	return out
}

func (v *view) sortedVoters() []Voter {
	voters := slices.Clone(v.Quorum.Voters)
	slices.SortFunc(voters, func(a, b Voter) int { return int(a.ID) - int(b.ID) })
	return voters
}

// endsQuorum says whether too few voters are left without these. One whose broker is fenced is
// none: the leader of the quorum goes on for a while before it says that it does not hear a voter.
func (v *view) endsQuorum(gone []int32) bool {
	left, dies := 0, false
	for _, c := range v.Quorum.Voters {
		switch {
		case slices.Contains(gone, c.ID):
			dies = true
		case c.Current && (v.state[c.ID] == nil || v.alive(c.ID)):
			left++
		}
	}
	return v.Quorum.Known && dies && left <= len(v.Quorum.Voters)/2
}

// elects says whether leaders and in-sync replicas can change without these. Where nothing is
// known of the quorum it is taken for healthy.
func (v *view) elects(gone []int32) bool { return v.Quorum.Silent == "" && !v.endsQuorum(gone) }

// outcome is what becomes of a partition by a death.
type outcome struct{ stops, refuses, mayRefuse, loses, unclean, mayBeUnclean bool }

func (v *view) death(who Subject, gone ...int32) Death {
	d := Death{Subject: who, EndsQuorum: v.endsQuorum(gone)}
	for _, id := range gone {
		if v.state[id] != nil {
			d.Brokers = append(d.Brokers, id)
		}
	}
	elects := v.elects(gone)
	for i := range v.topics {
		t := &v.topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			o := v.outcomeOf(t, p, gone, elects)
			for _, k := range []struct {
				is   bool
				list *Partitions
			}{
				{o.stops, &d.Stops}, {o.refuses, &d.RefusesWrites}, {o.mayRefuse, &d.MayRefuseWrites},
				{o.loses, &d.Loses}, {o.unclean, &d.Unclean}, {o.mayBeUnclean, &d.MayBeUnclean},
			} {
				if k.is {
					k.list.add(t, p)
				}
			}
		}
	}
	d.Groups, d.Commits = v.groupsIn(d.Stops), v.groupsIn(d.RefusesWrites)
	return d
}

// outcomeOf tells what becomes of a partition when these are gone.
func (v *view) outcomeOf(t *Topic, p *Partition, gone []int32, elects bool) (o outcome) {
	if all := whole(p); len(all) > 0 && len(without(all, gone)) == 0 {
		o.loses = true
	}
	if !v.serves(p) || len(without(p.ISR, gone)) == len(p.ISR) && !slices.Contains(gone, p.Leader) {
		return o
	}
	takes, unknown := v.takes(t, p), !minISRKnown(t, p)
	left := v.candidates(p.ISR, gone)
	switch {
	case !elects && slices.Contains(gone, p.Leader):
		o.stops = true
	case !elects:
		o.refuses = takes // the dead stay in the ISR, and every write waits for them
	case len(left) > 0:
		o.refuses, o.mayRefuse = takes && len(left) < minISR(t, p), takes && unknown
	case len(v.candidates(p.ELR, gone)) > 0:
		o.refuses, o.mayRefuse = takes && minISR(t, p) > 1, takes && unknown
	case t.Unclean == Yes && len(v.candidates(p.Replicas, gone)) > 0:
		o.unclean, o.refuses, o.mayRefuse = true, takes && minISR(t, p) > 1, takes && unknown
	default:
		o.stops, o.mayBeUnclean = true, t.Unclean == Unknown && len(v.candidates(p.Replicas, gone)) > 0
	}
	return o
}

// candidates are those of these that live on.
func (v *view) candidates(of, gone []int32) []int32 {
	return slices.DeleteFunc(without(of, gone), func(r int32) bool { return !v.alive(r) })
}

// ofDeath are the findings that a death gives.
func (v *view) ofDeath(d *Death) []Finding {
	severity := High
	if d.Subject.Kind == "rack" {
		severity = Warning
	}
	who := d.Subject.String()
	var out []Finding
	add := func(id string, all Partitions, groups []string, why, what string, args ...any) *Finding {
		f := Finding{ID: id, Severity: severity, Subject: d.Subject, What: fmt.Sprintf("if %s died now, ", who) + fmt.Sprintf(what, args...), Why: why, Partitions: all, Groups: groups}
		if d.EndsQuorum && id != "death-loses" { // replicas do not mend it
			f.Do, f.Command = "have three voters that are up, each on a machine of its own", v.command("cluster status")
		} else {
			f.Do, f.Command = v.remedy(all)
		}
		out = append(out, f)
		return &out[len(out)-1]
	}
	if d.Groups != nil {
		add("death-stops-groups", only(d.Stops, offsetsTopic), d.Groups,
			"consumers of these groups stop, even where the partitions that they read go on: they cannot join, and cannot commit",
			"%s would have no coordinator: %s", counted(len(d.Groups), "group"), names(d.Groups))
	}
	if d.Stops != nil {
		why := "nobody else has everything of them and could lead, so that they can be neither read nor written until it is back"
		if d.EndsQuorum {
			why = "without a majority of the controllers' quorum nobody else is elected"
		}
		add("death-stops", d.Stops, nil, why, "%d of %s would stop: %s", d.Stops.Count(), counted(v.total, "partition"), d.Stops)
	}
	if d.Loses != nil {
		add("death-loses", d.Loses, nil, "nobody else has everything that was acknowledged: with its disks that is gone",
			"and its disks were lost, records of %d of %s would be lost: %s", d.Loses.Count(), counted(v.total, "partition"), d.Loses)
	}
	if d.Unclean != nil {
		f := add("death-unclean", d.Unclean, nil, "unclean elections are on, and those that are left lack records: what was acknowledged is cut off",
			"%d of %s would be led by a replica that lacks records: %s", d.Unclean.Count(), counted(v.total, "partition"), d.Unclean)
		f.Do = "switch unclean.leader.election.enable off, for all topics of this list, and wait until the replicas are in sync"
		f.Command = v.command("topic alter " + d.Unclean[0].Topic + " --config unclean.leader.election.enable=false")
	}
	if d.RefusesWrites != nil {
		why := "fewer replicas would be in sync than min.insync.replicas asks for"
		if d.EndsQuorum {
			why = "without a majority of the controllers' quorum it stays in the ISR, and writes wait for it"
		}
		if d.Commits != nil {
			why += fmt.Sprintf("; %s could not commit: %s", counted(len(d.Commits), "group"), names(d.Commits))
		}
		add("death-refuses-writes", d.RefusesWrites, d.Commits, why,
			"%d of %s would refuse writes with acks=all: %s", d.RefusesWrites.Count(), counted(v.total, "partition"), d.RefusesWrites)
	}
	return out
}

// only are the partitions of one topic.
func only(all Partitions, topic string) Partitions {
	return slices.DeleteFunc(slices.Clone(all), func(t TopicPartitions) bool { return t.Topic != topic })
}

// verb is what so many do.
func verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// counted is a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, strings.TrimSuffix(what, "s"))
}
