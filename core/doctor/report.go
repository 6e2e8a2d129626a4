package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Report is what was found. Fields are only ever added.
type Report struct {
	// Findings are sorted, the worst first.
	Findings []Finding `json:"findings"`
	// Deaths are what would happen, one by one, to brokers, racks and controllers that serve.
	Deaths []Death `json:"deaths"`
}

// Finding is one thing that is not as it should be.
type Finding struct {
	ID         string     `json:"id"` // the same in every release
	Severity   Severity   `json:"severity"`
	Subject    Subject    `json:"subject"`
	What       string     `json:"what"`
	Why        string     `json:"why"` // it matters
	Do         string     `json:"do"`
	Command    string     `json:"command"`
	Partitions Partitions `json:"partitions,omitempty"` // that it is about
	Groups     []string   `json:"groups,omitempty"`
}

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // clients are stopped, or refused, now
	High     Severity = "high"     // one death would stop, refuse or lose something
	Warning  Severity = "warning"  // it is weaker than it looks
)

var severities = []Severity{Critical, High, Warning}

// Subject is what a finding is about.
type Subject struct {
	Kind string `json:"kind"` // cluster, quorum, broker, rack, controller, topic
	Name string `json:"name"` // "": of the cluster, or the quorum, there is one
}

func (s Subject) String() string { return strings.TrimSpace(s.Kind + " " + s.Name) }

// Partitions are partitions by topic: internal topics first, then by name.
type Partitions []TopicPartitions

// TopicPartitions are some partitions of a topic, or all, by index.
type TopicPartitions struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
	Of         int     `json:"of"` // how many the topic has
}

// How many topics, partitions of one, and groups a sentence names.
const (
	topicsNamed     = 5
	partitionsNamed = 3
	groupsNamed     = 5
)

// Count is how many partitions there are.
func (all Partitions) Count() int {
	n := 0
	for _, t := range all {
		n += len(t.Partitions)
	}
	return n
}

// add adds one: those of a topic come one after the other.
func (all *Partitions) add(t *Topic, p *Partition) {
	last := len(*all) - 1
	if last < 0 || (*all)[last].Topic != t.Name {
		*all = append(*all, TopicPartitions{Topic: t.Name, Of: len(t.Partitions)})
		last++
	}
	(*all)[last].Partitions = append((*all)[last].Partitions, p.Index)
}

// String names a few of them.
func (all Partitions) String() string {
	var out []string
	for _, t := range all[:min(topicsNamed, len(all))] {
		n := len(t.Partitions)
		if n == t.Of {
			out = append(out, fmt.Sprintf("%s (all %d)", t.Topic, n))
			continue
		}
		some := make([]string, 0, partitionsNamed)
		for _, p := range t.Partitions[:min(partitionsNamed, n)] {
			some = append(some, number(p))
		}
		more := ""
		if n > partitionsNamed {
			more = ", ..."
		}
		out = append(out, fmt.Sprintf("%s (%d of %d: %s%s)", t.Topic, n, t.Of, strings.Join(some, ", "), more))
	}
	return andMore(out, len(all)-topicsNamed, "topics")
}

func names(groups []string) string {
	return andMore(slices.Clone(groups[:min(groupsNamed, len(groups))]), len(groups)-groupsNamed, "groups")
}

func andMore(some []string, more int, what string) string {
	text := strings.Join(some, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more %s", more, what)
	}
	return text
}

// order is that of findings of one severity.
var order = []string{
	"no-controller", "leaderless", "group-without-coordinator", "under-min-isr",
	"broker-dead", "broker-unreachable", "advertised-astray",
	"death-stops-groups", "death-stops", "death-loses", "death-unclean", "death-refuses-writes", "quorum-breaks",
	"internal-below-target", "below-target", "internal-replication-factor-one", "replication-factor-one",
	"replication-factor-is-min-isr", "min-isr-one", "unclean-election",
	"offsets-one-leader", "offsets-one-rack", "replicas-behind", "broker-stopping",
	"voter-silent", "voter-behind", "one-broker", "two-brokers", "one-rack",
}

// Examine says what there is to say of a cluster.
func Examine(c *Cluster) Report {
	v := newView(c)
	r := Report{Findings: []Finding{}, Deaths: v.deaths()}
	r.Findings = append(r.Findings, v.now()...)
	for i := range r.Deaths {
		r.Findings = append(r.Findings, v.ofDeath(&r.Deaths[i])...)
	}
	r.Findings = append(r.Findings, v.ofQuorum()...)
	r.Findings = append(r.Findings, v.ofReplicas()...)
	r.Findings = append(r.Findings, v.ofPlaces()...)
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			cmp.Compare(slices.Index(order, a.ID), slices.Index(order, b.ID)))
	})
	return r
}

// command is a command of this program, at this cluster.
func (v *view) command(args string) string {
	if v.Bootstrap == "" {
		return "brokerd " + args
	}
	return "brokerd " + args + " -b " + v.Bootstrap
}
