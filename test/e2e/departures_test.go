package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Brokers that come and go for ever, as an operator has them do: by `brokerd broker decommission`.

// decommission is the command while it runs.
type decommission struct {
	errs  bytes.Buffer
	ended chan error
}

// decommission begins to take a broker away, asked of this one.
func (b *broker) decommission(n int32) *decommission {
	b.t.Helper()
	path, err := executable()
	if err != nil {
		b.t.Fatal(err)
	}
	d := &decommission{ended: make(chan error, 1)}
	cmd := exec.CommandContext(testContext(b.t, startTimeout), path, "broker", "decommission", fmt.Sprint(n), "-b", b.addr())
	cmd.Stderr = &d.errs
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() { d.ended <- cmd.Wait() }()
	return d
}

// end waits for the command's end, and returns what it said.
func (d *decommission) end() (said string, err error) {
	err = <-d.ended
	return d.errs.String(), err
}

// set gives a broker another value of a setting.
func (b *broker) set(key, value string) {
	for i, pair := range b.settings {
		if strings.HasPrefix(pair, key+"=") {
			b.settings[i] = key + "=" + value
		}
	}
}

// awaitQuorum waits until these brokers vote, and those follow.
func (b *broker) awaitQuorum(voters, observers []int32) {
	b.t.Helper()
	ids := func(of []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) []int32 {
		out := []int32{}
		for _, r := range of {
			out = append(out, r.ReplicaID)
		}
		slices.Sort(out)
		return out
	}
	if err := eventually(testContext(b.t, startTimeout), func() error {
		if q := b.quorum(); !slices.Equal(ids(q.CurrentVoters), voters) || !slices.Equal(ids(q.Observers), observers) {
			return fmt.Errorf("%s; want voters %v, observers %v", quorumOf(q), voters, observers)
		}
		return nil
	}); err != nil {
		b.t.Fatalf("%v\n%s", err, b.tail())
	}
}

// keptOn wants a partition to be in sync on these brokers and nowhere else.
func keptOn(want ...int32) func(kmsg.MetadataResponseTopicPartition) error {
	return func(p kmsg.MetadataResponseTopicPartition) error {
		has, isr := slices.Sorted(slices.Values(p.Replicas)), slices.Sorted(slices.Values(p.ISR))
		if p.Leader < 0 || !slices.Equal(has, want) || !slices.Equal(isr, want) {
			return fmt.Errorf("leader %d, replicas %v, of which %v are in sync; want %v", p.Leader, p.Replicas, p.ISR, want)
		}
		return nil
	}
}

// Of three brokers one is dead for good, with its disk. A fourth takes its replicas and its vote,
// under load: then any of the three may die, as before. The dead one's disk turns up, and its
// broker ends, since it was forgotten. A fifth joins, and one that votes is taken away in order:
// its vote is handed on at once.
func TestDeadBrokerIsReplacedByAnother(t *testing.T) {
	const topic = "orders"
	all := newServers(t, 5)
	var seeds []string
	for _, b := range all[:3] {
		seeds = append(seeds, b.transport())
	}
	for _, b := range all {
		b.set("cluster.seeds", strings.Join(seeds, ","))
	}
	one, two, three, four, five := all[0], all[1], all[2], all[3], all[4]
	for _, b := range all[:3] {
		b.launch()
	}
	for _, b := range all[:3] {
		b.waitReady()
	}
	two.awaitQuorum([]int32{1, 2, 3}, []int32{})
	cluster := clusterID(t, two.addr())
	two.waitBrokers(3)
	two.placeTopic(topic, nil, []int32{3, 1, 2})
	two.partition0(topic, 3)
	l := newLedger()
	stop := franzLoad(t, one.addr()+","+two.addr(), topic, l)
	ctx := testContext(t, 3*startTimeout)
	waitAcked(ctx, t, two, l, 500)

	l.killing()
	three.kill()
	waitUnheld(t, three)
	lost := three.dir + ".lost"
	if err := os.Rename(three.dir, lost); err != nil {
		t.Fatal(err)
	}
	two.await(topic, 0, inSync(2))
	said, err := two.decommission(3).end()
	if want := "decommission broker 3: only brokers 1 and 2 serve without it, too few for the replicas of orders-0: start another one first, or say --fewer-replicas"; err == nil || !strings.Contains(said, want) {
		t.Errorf("with nobody to take its replicas: %v, %s, want %q", err, said, want)
	}
	two.awaitQuorum([]int32{1, 2, 3}, []int32{})

	four.start()
	two.waitBrokers(3)
	two.awaitQuorum([]int32{1, 2, 3}, []int32{4})
	said, err = four.decommission(3).end()
	if want := "broker 3 does not vote any more; brokers 1, 2 and 4 do"; err != nil || !strings.Contains(said, want) {
		t.Fatalf("decommission broker 3: %v\n%s\nwant %q", err, said, want)
	}
	two.awaitQuorum([]int32{1, 2, 4}, []int32{})
	two.await(topic, 0, keptOn(1, 2, 4))

	if err := os.Rename(lost, three.dir); err != nil {
		t.Fatal(err)
	}
	three.launch()
	if err := eventually(testContext(t, startTimeout), func() error {
		if out := three.output(); !strings.Contains(out, "move it away to join as a new one") {
			return errors.New("broker 3 goes on with the disk that was lost")
		}
		return nil
	}); err != nil {
		t.Errorf("%v\n%s", err, three.tail())
	}
	three.kill()
	if out, err := two.command("cluster", "status", "-b", two.addr()); err != nil {
		t.Errorf("%v\n%s", err, out)
	}

	l.killing()
	one.kill()
	waitAcked(ctx, t, two, l, l.inFlight()+1)
	createTopic(t, four.addr(), "after", 1)
	one.start()
	two.await(topic, 0, keptOn(1, 2, 4))

	five.start()
	two.awaitQuorum([]int32{1, 2, 4}, []int32{5})
	taken := two.decommission(1)
	two.awaitQuorum([]int32{2, 4, 5}, []int32{1})
	two.await(topic, 0, keptOn(2, 4, 5))
	one.stop()
	if said, err = taken.end(); err != nil || !strings.Contains(said, "stop it now") {
		t.Errorf("decommission broker 1: %v\n%s", err, said)
	}
	two.awaitQuorum([]int32{2, 4, 5}, []int32{})
	waitAcked(ctx, t, two, l, l.inFlight()+1)
	stop()
	verify(t, two, topic, l)
	for _, b := range []*broker{two, four, five} {
		if got := clusterID(t, b.addr()); got != cluster {
			t.Errorf("a broker is of cluster %s, and the first were of %s", got, cluster)
		}
	}
}
