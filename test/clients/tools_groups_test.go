package clients

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupTool = "consumer.group.ConsumerGroupCommand"

// atSecond is a time that a tool can be asked for by its date.
func atSecond(n int) time.Time { return time.Unix(int64(n), 0) }

// commit commits offsets of partition 0, 1, ... of a topic for a group that nobody is
// in.
func (r *toolRun) commit(group, topic string, offsets ...int64) {
	r.Helper()
	var all kadm.Offsets
	for p, o := range offsets {
		all.AddOffset(topic, int32(p), o, -1)
	}
	if err := r.admin(r.addr).CommitAllOffsets(r.within(askTimeout), group, all); err != nil {
		r.Fatalf("commit: %v", err)
	}
}

// committed fails the case unless the group has committed this offset of partition 0.
func (r *toolRun) committed(group, topic string, want int64) {
	r.Helper()
	all, err := r.admin(r.addr).FetchOffsets(r.within(askTimeout), group)
	if err != nil {
		r.Fatalf("committed offsets: %v", err)
	}
	if got, ok := all.Lookup(topic, 0); !ok || got.At != want {
		r.Errorf("committed %v, want %d", got.At, want)
	}
}

// member joins a group with a member that has the given client ID, and waits until it
// has all of the topic's partitions.
func (r *toolRun) member(group, topic, clientID string) {
	r.Helper()
	c := r.client(r.addr, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ClientID(clientID),
		kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit(), kgo.FetchMaxWait(200*time.Millisecond))
	ctx := r.within(askTimeout)
	if fetches := c.PollFetches(ctx); fetches.Err() != nil {
		r.Fatalf("member: %v", fetches.Err())
	}
}

func groupsList(r *toolRun) {
	topic := r.topic(r.addr, "tool-list", 1)
	r.values(topic, 0, 1)
	empty, stable := topic+"-empty", topic+"-stable"
	r.commit(empty, topic, 1)
	r.member(stable, topic, "lister")
	out := r.ok(groupTool, "--list")
	r.has(out, empty)
	r.has(out, stable)
	out = r.ok(groupTool, "--list", "--state")
	r.has(out, empty, "Empty")
	r.has(out, stable, "Stable")
	out = r.ok(groupTool, "--list", "--state", "stable")
	r.has(out, stable, "Stable")
	r.hasNot(out, empty)
	r.has(r.ok(groupTool, "--list", "--type"), stable, "Classic")
	r.has(r.ok("GroupsCommand", "--list", "--group-type", "classic"), stable, "Classic", "consumer")
}

func groupsDescribe(r *toolRun) {
	topic := r.topic(r.addr, "tool-describe", 2)
	r.values(topic, 0, 5)
	group := topic + "-group"
	r.commit(group, topic, 2)
	out := r.ok(groupTool, "--describe", "--group", group, "--offsets")
	r.has(out, group, topic, "0", "2", "5", "3", "-", "-", "-")
	found := r.admin(r.addr).FindGroupCoordinators(r.within(askTimeout), group)
	if err := found.Error(); err != nil {
		r.Fatal(err)
	}
	id := strconv.Itoa(int(found[group].NodeID))
	_, at := r.brokerIDs()
	r.has(r.ok(groupTool, "--describe", "--group", group, "--state"), group, at[id], "("+id+")", "-", "Empty", "0")

	r.member(group, topic, "describer")
	out = r.ok(groupTool, "--describe", "--group", group)
	for _, want := range []string{`0\s+2\s+5\s+3`, `1\s+-\s+0\s+-`} {
		if !regexp.MustCompile(regexp.QuoteMeta(group+" ") + `\s*` + topic + `\s+` + want + `\s+describer-\S+\s+/127\.0\.0\.1\s+describer\s`).MatchString(out) {
			r.Errorf("no line %s in what it printed:\n%s", want, out)
		}
	}
	r.has(r.ok(groupTool, "--describe", "--group", group, "--state"), group, at[id], "("+id+")", "range", "Stable", "1")
	for _, verbose := range [][]string{nil, {"--verbose"}} {
		out = r.ok(groupTool, append([]string{"--describe", "--group", group, "--members"}, verbose...)...)
		if !regexp.MustCompile(regexp.QuoteMeta(group) + `\s+describer-\S+\s+/127\.0\.0\.1\s+describer\s+2\s`).MatchString(out) {
			r.Errorf("no member with two partitions in what it printed:\n%s", out)
		}
		if verbose != nil {
			r.contains(out, topic+":0,1")
		}
	}
	r.refused("GroupIdNotFoundException", groupTool, "--describe", "--group", topic+"-none")
}

// reset runs reset-offsets for partition 0.
func (r *toolRun) reset(group, topic, act string, how ...string) string {
	r.Helper()
	return r.ok(groupTool, append([]string{"--reset-offsets", "--group", group, "--topic", topic + ":0", act}, how...)...)
}

func groupsReset(r *toolRun) {
	topic := r.topic(r.addr, "tool-reset", 1)
	r.values(topic, 0, 10)
	group := topic + "-group"
	r.commit(group, topic, 4)
	r.has(r.reset(group, topic, "--dry-run", "--to-earliest"), group, topic, "0", "0")
	r.committed(group, topic, 4)
	for _, k := range []struct {
		how  []string
		want int64
	}{
		{[]string{"--to-earliest"}, 0},
		{[]string{"--to-latest"}, 10},
		{[]string{"--to-offset", "6"}, 6},
		{[]string{"--to-current"}, 6},
		{[]string{"--shift-by", "-2"}, 4},
		{[]string{"--shift-by", "3"}, 7},
		{[]string{"--to-offset", "99"}, 10}, // the end is the furthest
	} {
		r.has(r.reset(group, topic, "--execute", k.how...), group, topic, "0", strconv.FormatInt(k.want, 10))
		r.committed(group, topic, k.want)
	}
	// A group with members keeps its offsets.
	r.commit(group, topic, 4)
	r.member(group, topic, "busy")
	r.refused("current state is Stable", groupTool, "--reset-offsets", "--group", group, "--topic", topic, "--execute", "--to-earliest")
	r.committed(group, topic, 4)
}

func groupsResetTime(r *toolRun) {
	topic := r.topic(r.addr, "tool-time", 1)
	r.values(topic, 0, 10)
	now := &kgo.Record{Topic: topic, Value: []byte("now"), Timestamp: time.Now()}
	if err := r.client(r.addr).ProduceSync(r.within(askTimeout), now).FirstErr(); err != nil {
		r.Fatal(err)
	}
	group := topic + "-group"
	r.commit(group, topic, 0)
	r.reset(group, topic, "--execute", "--to-datetime", "1970-01-01T00:00:04.500+00:00")
	r.committed(group, topic, 4) // record 4 is of second 5
	r.reset(group, topic, "--execute", "--by-duration", "PT1H")
	r.committed(group, topic, 10)
}

func groupsResetFile(r *toolRun) {
	topic := r.topic(r.addr, "tool-file", 2)
	r.values(topic, 0, 5)
	r.values(topic, 1, 5)
	group := topic + "-group"
	r.commit(group, topic, 3, 4)
	plan := r.ok(groupTool, "--reset-offsets", "--group", group, "--topic", topic, "--dry-run", "--to-current", "--export")
	r.has(plan, topic+",0,3")
	r.has(plan, topic+",1,4")
	r.reset(group, topic, "--execute", "--to-earliest")
	r.committed(group, topic, 0)
	out := r.ok(groupTool, "--reset-offsets", "--group", group, "--execute", "--from-file", r.file("plan.csv", plan))
	r.has(out, group, topic, "1", "4")
	r.committed(group, topic, 3)
}

func groupsDeleteOffsets(r *toolRun) {
	topic := r.topic(r.addr, "tool-forget", 2)
	r.values(topic, 0, 5)
	other := r.topic(r.addr, "tool-keep", 1)
	group := topic + "-group"
	r.commit(group, topic, 3, 0)
	r.commit(group, other, 0)
	r.has(r.ok(groupTool, "--delete-offsets", "--group", group, "--topic", topic+":0"), topic, "0", "Successful")
	out := r.ok(groupTool, "--describe", "--group", group)
	r.has(out, group, topic, "1", "0", "0", "0", "-", "-", "-")
	r.has(out, group, other, "0", "0", "0", "0", "-", "-", "-")
	if strings.Contains(out, " 5 ") {
		r.Errorf("partition 0 is still there: %s", out)
	}
	// What a member is subscribed to stays.
	r.member(group, topic, "busy")
	r.refused("GroupSubscribedToTopicException", groupTool, "--delete-offsets", "--group", group, "--topic", topic)
}

func groupsDelete(r *toolRun) {
	topic := r.topic(r.addr, "tool-remove", 1)
	r.values(topic, 0, 1)
	empty, stable := topic+"-empty", topic+"-stable"
	r.commit(empty, topic, 1)
	r.member(stable, topic, "busy")
	r.contains(r.ok(groupTool, "--delete", "--group", empty), fmt.Sprintf("Deletion of requested consumer groups ('%s') was successful.", empty))
	r.hasNot(r.ok(groupTool, "--list"), empty)
	r.refused("GroupIdNotFoundException", groupTool, "--delete", "--group", empty)
	r.refused("GroupNotEmptyException", groupTool, "--delete", "--group", stable)
	r.has(r.ok(groupTool, "--list"), stable)
}
