package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// pollEvery is how often tests look for what nobody tells them of.
const pollEvery = 10 * time.Millisecond

// eventually calls f until it returns nil.
func eventually(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("given up, the last answer was: %v", err)
		case <-tick.C:
		}
	}
}

// members are brokers of one process, over a network of its own.
type members struct {
	t       *testing.T
	net     *memnet.Network
	dirs    map[int32]string
	brokers map[int32]*running
}

func newMembers(t *testing.T) *members {
	t.Helper()
	return &members{t: t, net: memnet.NewNetwork(memnet.NetworkOptions{}), dirs: map[int32]string{}, brokers: map[int32]*running{}}
}

func memberName(id int32) string { return fmt.Sprintf("node-%d", id) }

// make makes a broker that names others as its seeds, on the directory that it had before.
func (m *members) make(id int32, bootstrap bool, seeds ...int32) *running {
	m.t.Helper()
	if m.dirs[id] == "" {
		m.dirs[id] = m.t.TempDir()
	}
	var names []string
	for _, s := range seeds {
		names = append(names, memberName(s))
	}
	cfg := settings(m.t, m.dirs[id],
		config.Override{Name: "node.id", Value: fmt.Sprint(id)},
		config.Override{Name: "cluster.bootstrap", Value: fmt.Sprint(bootstrap)},
		config.Override{Name: "cluster.seeds", Value: strings.Join(names, ",")},
		config.Override{Name: "transport.plugin", Value: "memnet"},
		config.Override{Name: "transport.config", Value: string(memnet.Settings(memberName(id), "all of us"))},
		config.Override{Name: "memory", Value: "64MiB"})
	return newBrokerWith(m.t, cfg, Deps{
		Builtin:    map[string][]string{"memstore": {"serve-memstore"}},
		Transports: map[string]transport.Provider{"memnet": m.net},
	})
}

// start starts a broker, and waits until it serves.
func (m *members) start(id int32, bootstrap bool, seeds ...int32) *running {
	m.t.Helper()
	m.brokers[id] = startBroker(m.t, m.make(id, bootstrap, seeds...))
	return m.brokers[id]
}

// addresses are those of the brokers that run. A broker has another one in each life.
func (m *members) addresses() []string {
	var all []string
	for _, b := range m.brokers {
		all = append(all, b.Addresses()...)
	}
	return all
}

// client is one of those brokers that run.
func (m *members) client(opts ...kgo.Opt) *kgo.Client {
	m.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(m.addresses()...), kgo.MetadataMinAge(pollEvery), kgo.MetadataMaxAge(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return pollEvery })}, opts...)...)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(c.Close)
	return c
}

// voters are the nodes that vote, as the leader of the quorum says.
func (m *members) voters() (leader int32, voters []int32) {
	for id, b := range m.brokers {
		s, err := b.now.Load().quorum.Status()
		if err != nil {
			continue
		}
		for _, v := range s.Voters {
			voters = append(voters, int32(v.ID))
		}
		slices.Sort(voters)
		return id, voters
	}
	return -1, nil
}

func (m *members) waitVoters(want ...int32) (leader int32) {
	m.t.Helper()
	eventually(m.t, func(context.Context) error {
		at, voters := m.voters()
		if leader = at; !slices.Equal(voters, want) {
			return fmt.Errorf("%v vote, want %v", voters, want)
		}
		return nil
	})
	return leader
}

// waitISR waits until partition 0 of a topic has replicas in sync, and returns its leader.
func (m *members) waitISR(topic string, want int) (leader int32) {
	m.t.Helper()
	eventually(m.t, func(context.Context) error {
		for _, b := range m.brokers {
			at, ok := b.now.Load().quorum.Image().TopicByName(topic)
			if !ok {
				return errors.New("the topic is not known everywhere")
			}
			p := at.Partitions[0]
			if leader = int32(p.Leader); leader < 0 || len(p.ISR) != want {
				return fmt.Errorf("broker %d leads, %v are in sync; want %d", p.Leader, p.ISR, want)
			}
		}
		return nil
	})
	return leader
}

func (m *members) stop(id int32) {
	m.t.Helper()
	b := m.brokers[id]
	delete(m.brokers, id)
	if err := b.stop(); err != nil {
		m.t.Errorf("stop broker %d: %v\n%s", id, err, b.log)
	}
}

// Three brokers become one cluster, keep a topic together, and go on when each in turn is
// stopped and started again: the active controller, the leader, and who is neither.
func TestBrokersJoin(t *testing.T) {
	m := newMembers(t)
	m.start(1, true)
	m.start(2, false, 1)
	m.start(3, false, 1, 2)
	m.waitVoters(1, 2, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := m.client(kgo.DefaultProduceTopic("orders"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	// Through whichever broker is asked.
	if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, -1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	produced := 0
	produce := func() {
		t.Helper()
		for range 20 {
			if err := c.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(produced))).FirstErr(); err != nil {
				t.Fatalf("record %d: %v", produced, err)
			}
			produced++
		}
	}
	for id := int32(1); id <= 3; id++ {
		leader := m.waitISR("orders", 3)
		produce()
		m.checkTraffic(leader)
		m.waitTold()
		m.stop(id)
		if leader := m.waitISR("orders", 2); leader == id {
			t.Errorf("broker %d has stopped, and leads", id)
		}
		produce()
		m.waitTold(id)
		m.start(id, false, 1, 2, 3)
		if err := c.UpdateSeedBrokers(m.addresses()...); err != nil {
			t.Fatal(err)
		}
	}
	m.waitISR("orders", 3)
	m.checkScraped()
	for read := 0; read < produced; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Value) != fmt.Sprint(read) || r.Offset != int64(read) {
				t.Fatalf("%q at offset %d, want %d", r.Value, r.Offset, read)
			}
			read++
		})
	}
}

// A node whose directory was wiped creates no second cluster, though it may create one: it
// joins, as another member, and the one that it was does not vote any more.
func TestWipedFirstNodeJoins(t *testing.T) {
	m := newMembers(t)
	id := m.start(1, true).now.Load().quorum.Identity()
	m.start(2, false, 1)
	m.start(3, false, 1)
	m.waitVoters(1, 2, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := kadm.NewClient(m.client()).CreateTopic(ctx, 1, -1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	m.waitISR("orders", 3)
	m.stop(1)
	m.dirs[1] = ""
	wiped := m.start(1, true, 2, 3).now.Load().quorum.Identity()
	if wiped.ClusterID != id.ClusterID || wiped.DirectoryID == id.DirectoryID {
		t.Errorf("identity %v became %v", id, wiped)
	}
	m.waitVoters(1, 2, 3)
	m.waitISR("orders", 3)
}

// Nodes that name each other, and start together, create one cluster.
func TestStartedTogether(t *testing.T) {
	m := newMembers(t)
	ran := map[int32]chan error{}
	for id := int32(1); id <= 3; id++ {
		m.brokers[id] = m.make(id, true, 1, 2, 3)
		ran[id] = launch(t, m.brokers[id])
	}
	for id, b := range m.brokers {
		waitServing(t, b, ran[id])
	}
	m.waitVoters(1, 2, 3)
	for id, b := range m.brokers {
		if got, want := b.now.Load().quorum.Identity().ClusterID, m.brokers[1].now.Load().quorum.Identity().ClusterID; got != want {
			t.Errorf("broker %d is of cluster %s, and broker 1 of %s", id, got, want)
		}
	}
}

// Without its transport nobody joins, and nothing is created.
func TestNoTransport(t *testing.T) {
	b := newMembers(t).make(2, false, 1)
	b.deps.Transports = nil
	if err := b.Run(t.Context()); !errors.Is(err, ErrTransport) || !strings.Contains(err.Error(), "there is no plugin memnet") {
		t.Errorf("without its transport: %v", err)
	}
	if _, err := quorum.Open(quorum.Config{Dir: b.quorumDir(), NodeID: 2}, quorum.Deps{}); !errors.Is(err, quorum.ErrNoCluster) {
		t.Errorf("something was created: %v", err)
	}
}
