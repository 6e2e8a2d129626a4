package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func ids(s string) (out []int32) {
	for _, c := range s {
		out = append(out, c-'0')
	}
	return out
}

// made is a cluster of so many brokers that serve, who all vote, up to three of them, with
// topics that are given as "name minISR partition...", and each partition as
// "replicas/isr/leader/elr", of which what is left out is as the replicas.
func made(brokers int32, topics ...string) *Cluster {
	c := &Cluster{Bootstrap: "b:1", Quorum: Quorum{Known: true, Leader: 1}}
	for id := int32(1); id <= brokers; id++ {
		c.Brokers = append(c.Brokers, Broker{ID: id, Host: "h", Port: id, State: Serving, Reached: Yes})
		if brokers > 2 && id <= 3 || id == 1 {
			c.Quorum.Voters = append(c.Quorum.Voters, Voter{ID: id, Current: true})
		}
	}
	for _, text := range topics {
		f := strings.Fields(text)
		t := Topic{Name: f[0], Internal: strings.HasPrefix(f[0], "__"), MinISR: int(f[1][0] - '0'), Unclean: No}
		for i, p := range f[2:] {
			part := strings.Split(p+"///", "/")
			x := Partition{Index: int32(i), Replicas: ids(part[0]), ISR: ids(part[1]), ELR: ids(part[3])}
			if len(part[1]) == 0 {
				x.ISR = ids(part[0])
			}
			switch part[2] {
			case "":
				x.Leader = x.Replicas[0]
			case "-":
				x.Leader = -1
			default:
				x.Leader = ids(part[2])[0]
			}
			t.Partitions = append(t.Partitions, x)
		}
		c.Topics = append(c.Topics, t)
	}
	return c
}

func (c *Cluster) with(change func(*Cluster)) *Cluster { change(c); return c }

// found are the IDs and subjects of findings.
func found(r Report) (out []string) {
	for _, f := range r.Findings {
		out = append(out, strings.TrimSpace(f.ID+" "+f.Subject.Name))
	}
	return out
}

const offsets = "__consumer_offsets 2 123 231 312"

func TestFindings(t *testing.T) {
	for _, c := range []struct {
		name string
		seen *Cluster
		want string // with commas between
	}{
		{"three that are well", made(3, offsets, "orders 2 123 231"), ""},
		{"nothing is known", made(3, offsets).with(func(c *Cluster) { c.Quorum = Quorum{} }), ""},
		{"one alone", made(1, "__consumer_offsets 2 1 1", "orders 1 1").with(func(c *Cluster) { c.Topics[0].Target = 3; c.Groups = []Group{{"g", 1}} }),
			"death-stops-groups 1,death-stops 1,death-loses 1,quorum-breaks,internal-below-target __consumer_offsets,replication-factor-one orders,one-broker"},
		{"two", made(2, "__consumer_offsets 2 12 21", "orders 2 12").with(func(c *Cluster) {
			c.Topics[0].Target, c.Topics[1].Target = 3, 3
			for i := range c.Topics {
				for j := range c.Topics[i].Partitions {
					c.Topics[i].Partitions[j].MinISR = 1
				}
			}
		}), "death-stops 1,death-refuses-writes 1,quorum-breaks,internal-below-target __consumer_offsets,below-target orders,two-brokers"},
		{"the founding outage", made(3, "__consumer_offsets 1 1 1 1", "orders 1 123 231 312").with(func(c *Cluster) { c.Groups = []Group{{"billing", 2}} }),
			"death-stops-groups 1,death-stops 1,death-loses 1,internal-below-target __consumer_offsets,min-isr-one orders,offsets-one-leader __consumer_offsets"},
		{"all are needed in sync", made(3, offsets, "orders 2 12"), "death-refuses-writes 1,death-refuses-writes 2,replication-factor-is-min-isr orders"},
		{"one is dead", made(3, offsets, "orders 2 123/23/2").with(func(c *Cluster) {
			c.Brokers[0].State, c.Quorum.Voters[0].Current, c.Quorum.Leader = Fenced, false, 2
			c.Topics[0].Partitions = nil
		}), "broker-dead 1,death-stops 2,death-refuses-writes 3,quorum-breaks,voter-silent 1,two-brokers"},
		{"leaderless", made(3, offsets, "orders 2 4/4/-"), "leaderless,broker-dead 4,replication-factor-one orders"},
		{"its group stops", made(3, "__consumer_offsets 2 123 4/4/-").with(func(c *Cluster) { c.Groups = []Group{{"a", 0}, {"b", 1}} }),
			"leaderless,group-without-coordinator,broker-dead 4,internal-below-target __consumer_offsets"},
		{"under min ISR", made(3, offsets, "orders 2 123/1"), "under-min-isr,death-stops 1,death-loses 1,replicas-behind"},
		{"the ELR leads", made(3, offsets, "orders 2 12/1/1/2"), "under-min-isr,replication-factor-is-min-isr orders,replicas-behind"},
		{"one in sync", made(3, offsets, "orders 1 123/1"), "death-stops 1,death-loses 1,min-isr-one orders,replicas-behind"},
		{"unclean", made(3, offsets, "orders 1 123/1").with(func(c *Cluster) { c.Topics[1].Unclean = Yes }),
			"death-loses 1,death-unclean 1,min-isr-one orders,unclean-election orders,replicas-behind"},
		{"no controller", made(3, offsets).with(func(c *Cluster) {
			c.Quorum = Quorum{Silent: "no answer"}
			c.Topics[0].Partitions = c.Topics[0].Partitions[:1]
		}),
			"no-controller,death-stops 1,death-refuses-writes 2,death-refuses-writes 3"},
		{"a lone controller", made(3, offsets).with(func(c *Cluster) { c.Quorum.Voters = []Voter{{ID: 9, Current: true}} }), "quorum-breaks"},
		{"a voter behind", made(3, offsets).with(func(c *Cluster) { c.Quorum.Voters[1].Lag = lagMax + 1 }), "voter-behind 2"},
		{"one leads all groups", made(3, "__consumer_offsets 2 123 132"), "offsets-one-leader __consumer_offsets"},
		{"racks", made(4, "__consumer_offsets 1 12 21", "orders 1 12 13").with(func(c *Cluster) {
			for i := range c.Brokers {
				c.Brokers[i].Rack = string("aabb"[i])
			}
			c.Topics[0].Target = 2
		}), "death-stops a,death-loses a,min-isr-one,offsets-one-rack __consumer_offsets"},
		{"one rack", made(3, offsets).with(func(c *Cluster) {
			for i := range c.Brokers {
				c.Brokers[i].Rack = "a"
			}
		}), "one-rack a"},
		{"not reached", made(3, offsets).with(func(c *Cluster) { c.Brokers[1].Reached = No }), "broker-unreachable 2"},
		{"astray", made(3, offsets).with(func(c *Cluster) { c.Brokers[1].Astray = true }), "advertised-astray 2"},
		{"stopping", made(3, offsets).with(func(c *Cluster) { c.Brokers[1].State = Stopping }), "broker-stopping 2,two-brokers"},
		{"being raised", made(3, offsets, "orders 2 123/1").with(func(c *Cluster) {
			p := &c.Topics[1].Partitions[0]
			p.Adding, p.MinISR, c.Topics[1].Target = ids("23"), 1, 3
		}), "death-stops 1,death-loses 1,below-target orders"},
		{"an operator chose two", made(3, offsets, "orders 1 12").with(func(c *Cluster) {
			c.Topics[1].Target, c.Topics[1].Partitions[0].Target = 3, 2
			c.Topics[1].MinISR, c.Topics[1].Partitions[0].MinISR = 2, 1
		}), ""},
		{"fewer than an operator chose", made(3, offsets, "orders 2 1").with(func(c *Cluster) {
			c.Topics[1].Target, c.Topics[1].Partitions[0].Target = 3, 2
		}), "death-stops 1,death-loses 1,below-target orders"},
		{"settings are not known", made(3, offsets, "orders 0 12").with(func(c *Cluster) { c.Topics[1].Unclean = Unknown }), ""},
		{"a partition without replicas", made(3, offsets, "orders 2 1").with(func(c *Cluster) {
			c.Topics[1].Partitions[0] = Partition{Leader: -1}
		}), "leaderless"},
		{"a dead one in sync", made(3, offsets, "orders 2 123").with(func(c *Cluster) {
			c.Brokers[2].State = Fenced
			c.Topics[0].Partitions = nil
		}), "under-min-isr,broker-dead 3,death-stops 1,quorum-breaks,two-brokers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Examine(c.seen)
			if got := strings.Join(found(r), ","); got != c.want {
				t.Errorf("found %s\n want %s", got, c.want)
			}
			for _, f := range r.Findings {
				if f.What == "" || f.Why == "" || f.Do == "" || !strings.HasPrefix(f.Command, "brokerd ") || !slices.Contains(order, f.ID) || f.Subject.Kind == "" {
					t.Errorf("not whole: %+v", f)
				}
			}
		})
	}
}

// dies has a broker dead, and the cluster without an offsets topic.
func dies(id int32, state State) func(*Cluster) {
	return func(c *Cluster) {
		c.Brokers[id-1].State = state
		c.Topics = slices.DeleteFunc(c.Topics, func(t Topic) bool { return t.Name == offsetsTopic })
	}
}

// TestSentences: what findings say is true of what was seen, and what they say to do can be done.
func TestSentences(t *testing.T) {
	raised := func(c *Cluster) {
		p := &c.Topics[1].Partitions[0]
		p.Adding, p.MinISR, c.Topics[1].Target = ids("23"), 1, 3
	}
	chosen := func(c *Cluster) { c.Topics[1].Target, c.Topics[1].Partitions[0].Target = 3, 1 }
	const fix, status = "brokerd doctor --fix -b b:1", "brokerd cluster status -b b:1"
	for _, c := range []struct {
		name, id string
		seen     *Cluster
		says     string // in one of its sentences
		not      string // in none
		run      string
	}{
		{"what is being raised is waited for", "death-stops", made(3, offsets, "orders 2 123/1").with(raised), "wait: it is being given more replicas", "give them", status},
		{"and is below its target", "below-target", made(3, offsets, "orders 2 123/1").with(raised), "wait: it is being given more replicas", "give them", status},
		{"and another is not", "below-target", made(3, offsets, "orders 2 123/1 2").with(raised), "wait for those that are being given more replicas, 1 of 2", "", fix},
		{"one is below its target", "below-target", made(3, offsets, "orders 1 12").with(func(c *Cluster) { c.Topics[1].Target = 3 }), "1 partition has fewer replicas than it is to have: orders (all 1), 2 of 3", "", fix},
		{"of what an operator chose", "below-target", made(3, offsets, "orders 1 1").with(func(c *Cluster) {
			c.Topics[1].Target, c.Topics[1].Partitions[0].Target = 3, 2
		}), "orders (all 1), 1 of 2", "", fix},
		{"a replica is dead", "death-stops", made(4, offsets, "orders 2 14/1").with(dies(4, Fenced)), "start broker 4 again, or decommission it", "give them", status},
		{"a replica is on nobody", "death-stops", made(4, offsets, "orders 2 14/1").with(dies(4, Unregistered)), "start broker 4 again", "decommission", status},
		{"an operator chose one", "replication-factor-one", made(3, offsets, "orders 1 1").with(chosen), "an operator has chosen", "", "brokerd topic describe orders -b b:1"},
		{"a fenced broker", "broker-dead", made(3, offsets).with(dies(2, Fenced)), "start it again", "", status},
		{"one that is not there", "broker-dead", made(3, offsets).with(dies(2, Unregistered)), "start it again", "decommission", status},
		{"a weak minimum", "min-isr-one", made(3, offsets, "orders 1 123"), "once the others have left the ISR, acks=all is answered when one replica alone has the record", "1 partitions", "brokerd topic alter orders --config min.insync.replicas=2 -b b:1"},
		{"two brokers, three controllers", "two-brokers", made(2, "orders 1 12").with(func(c *Cluster) {
			c.Quorum.Voters = []Voter{{ID: 7, Current: true}, {ID: 8, Current: true}, {ID: 9, Current: true}}
		}), "after one death nothing is replicated", "controllers", status},
		{"two brokers, two controllers", "two-brokers", made(2, "orders 1 12").with(func(c *Cluster) {
			c.Quorum.Voters = []Voter{{ID: 1, Current: true}, {ID: 2, Current: true}}
		}), "two controllers are no better than one", "", status},
		{"too few in sync", "under-min-isr", made(3, offsets, "orders 2 123/1"), "1 of 4 partitions refuses writes with acks=all", "dead", "brokerd topic describe orders -b b:1"},
		{"a dead one in sync", "under-min-isr", made(3, offsets, "orders 2 123").with(dies(3, Fenced)), "1 of 1 partition does not answer writes", "fewer replicas", "brokerd topic describe orders -b b:1"},
		{"some of each", "under-min-isr", made(3, offsets, "orders 2 123 12/1").with(dies(3, Fenced)), "2 of 2 partitions refuse writes with acks=all, or do not answer them", "", "brokerd topic describe orders -b b:1"},
	} {
		r := Examine(c.seen)
		i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == c.id })
		if i < 0 {
			t.Errorf("%s: %s is not found, but %v", c.name, c.id, found(r))
			continue
		}
		f := r.Findings[i]
		if all := f.What + "\n" + f.Why + "\n" + f.Do; !strings.Contains(all, c.says) || c.not != "" && strings.Contains(all, c.not) || f.Command != c.run {
			t.Errorf("%s: it says\n%s\nand %q, want %q, not %q, and %q", c.name, all, f.Command, c.says, c.not, c.run)
		}
	}
}

// What depends on a setting that is not known is told as that.
func TestUnknownSettings(t *testing.T) {
	c := made(3, offsets, "orders 0 123/12 31/3 1/1").with(func(c *Cluster) { c.Topics[1].Unclean = Unknown })
	deaths := Examine(c).Deaths
	if d := deaths[0]; fmt.Sprint(listed(d.MayRefuseWrites)) != "map[orders-0:true]" || d.MayBeUnclean != nil || fmt.Sprint(listed(d.Stops)) != "map[orders-2:true]" || d.RefusesWrites != nil {
		t.Errorf("of broker 1: %+v", d)
	}
	if d := deaths[2]; d.MayRefuseWrites != nil || fmt.Sprint(listed(d.MayBeUnclean)) != "map[orders-1:true]" || d.Unclean != nil {
		t.Errorf("of broker 3: %+v", d)
	}
	c.Topics[1].MinISR, c.Topics[1].Unclean = 1, No
	for _, d := range Examine(c).Deaths {
		if d.MayRefuseWrites != nil || d.MayBeUnclean != nil {
			t.Errorf("all is known, and %+v", d)
		}
	}
}

// BenchmarkExamine has topics with one partition, each of which has something to be found: twice
// as many take twice as long.
func BenchmarkExamine(b *testing.B) {
	for _, topics := range []int{5000, 10000, 20000} {
		b.Run(fmt.Sprint(topics), func(b *testing.B) {
			c := made(3, offsets)
			for i := range topics {
				one := made(3, "t 2 1 12/1").Topics[0]
				one.Name, one.Target = fmt.Sprintf("t%05d", i), 3
				c.Topics = append(c.Topics, one)
			}
			for b.Loop() {
				Examine(c)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*topics), "ns/topic")
		})
	}
}

// A plan in short: "topic-partition=replicas", and "topic-partition!" for an election.
func short(p Plan) string {
	var out []string
	for _, m := range p.Moves {
		out = append(out, fmt.Sprintf("%s-%d=%s", m.Topic, m.Partition, strings.Trim(strings.ReplaceAll(fmt.Sprint(m.To), " ", ""), "[]")))
	}
	for _, e := range p.Elections {
		out = append(out, fmt.Sprintf("%s-%d!", e.Topic, e.Partition))
	}
	return strings.Join(out, " ")
}

func TestMend(t *testing.T) {
	for _, c := range []struct {
		name string
		seen *Cluster
		want string
	}{
		{"nothing", made(3, offsets, "orders 2 123"), ""},
		{"the founding outage: leaders are spread", made(3, "__consumer_offsets 1 1 1 1"),
			"__consumer_offsets-0=213 __consumer_offsets-1=312 __consumer_offsets-2=123 __consumer_offsets-0! __consumer_offsets-1!"},
		{"two of three", made(2, "__consumer_offsets 1 1 1"), "__consumer_offsets-0=21 __consumer_offsets-1=12 __consumer_offsets-0!"},
		{"one more than is asked for", made(4, "orders 2 12 23"), "orders-0=124 orders-1=231"},
		{"no room", made(2, "orders 2 12"), ""},
		{"the first does not lead", made(3, "orders 2 123/123/2 231/123/1"), "orders-0! orders-1!"},
		{"the first is not in sync", made(3, "orders 2 123/23/2"), ""},
		{"all groups at one", made(3, "__consumer_offsets 2 123 132"), "__consumer_offsets-0=213 __consumer_offsets-0!"},
		{"another rack", made(4, "orders 1 1").with(func(c *Cluster) {
			for i := range c.Brokers {
				c.Brokers[i].Rack = string("aaab"[i])
			}
			c.Topics[0].Target = 2
		}), "orders-0=14"},
		{"groups in one rack", made(4, "__consumer_offsets 1 12 21").with(func(c *Cluster) {
			for i := range c.Brokers {
				c.Brokers[i].Rack = string("aabb"[i])
			}
			c.Topics[0].Target = 2
		}), "__consumer_offsets-0=13 __consumer_offsets-1=24"},
		{"what an operator chose", made(3, "orders 2 12 1").with(func(c *Cluster) {
			c.Topics[0].Target, c.Topics[0].Partitions[0].Target, c.Topics[0].Partitions[1].Target = 3, 2, 1
		}), ""},
		{"a replica is dead", made(4, "orders 2 12/1 12").with(func(c *Cluster) { c.Brokers[1].State = Fenced }), ""},
		{"a replica is on a broker that is not there", made(3, "orders 2 17/1"), ""},
		{"no replicas", made(3, "orders 2 1").with(func(c *Cluster) {
			c.Topics[0].Partitions[0] = Partition{Leader: 1}
		}), ""},
		{"under way, or without a leader", made(3, "orders 1 12/1 4/4/-").with(func(c *Cluster) {
			c.Topics[0].Target = 3
			c.Topics[0].Partitions[0].Adding = ids("2")
		}), ""},
	} {
		if got := short(Mend(c.seen)); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Many partitions, topics and groups are told in one sentence.
func TestPartitionsAreNamed(t *testing.T) {
	many := Partitions{{"a", []int32{0, 1}, 2}, {"b", []int32{0, 1, 2, 3}, 9}, {"c", []int32{5}, 9}, {"d", nil, 1}, {"e", nil, 1}, {"f", []int32{1}, 2}, {"g", nil, 1}}
	if got, want := many.String(), "a (all 2), b (4 of 9: 0, 1, 2, ...), c (1 of 9: 5), d (0 of 1: ), e (0 of 1: ) and 2 more topics"; got != want || many.Count() != 8 {
		t.Errorf("%d: %s\nwant %s", many.Count(), got, want)
	}
	if got := names(strings.Split("abcdefg", "")); got != "a, b, c, d, e and 2 more groups" {
		t.Error(got)
	}
}
