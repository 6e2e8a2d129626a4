package broker

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/peer"
	"github.com/brokerd/brokerd/core/telemetry"
	"github.com/brokerd/brokerd/sdk/transport"
)

// told is what all brokers that run tell together.
func (m *members) told() (led telemetry.Partitions, controllers []telemetry.Controller, unreached, all []string) {
	for _, b := range m.brokers {
		c := b.cluster()
		led.All += c.Led.All
		led.UnderReplicated += c.Led.UnderReplicated
		led.UnderMinISR += c.Led.UnderMinISR
		if c.Controller != nil {
			controllers = append(controllers, *c.Controller)
			for _, p := range c.Peers {
				if p.Unreached {
					unreached = append(unreached, p.Broker)
				}
			}
		}
		if c.Fenced || c.LeaseOver || !c.Quorum.Leader || len(c.Peers) != 2 {
			all = append(all, fmt.Sprintf("broker %d: %+v", b.cfg.NodeID, c))
		}
	}
	return led, controllers, unreached, all
}

// waitTold waits until the brokers that run tell of one partition, and of those that do not.
func (m *members) waitTold(down ...int32) {
	m.t.Helper()
	under := min(len(down), 1)
	var gone []string
	for _, id := range down {
		gone = append(gone, fmt.Sprint(id))
	}
	eventually(m.t, func(context.Context) error {
		led, controllers, unreached, all := m.told()
		if len(controllers) != 1 {
			return fmt.Errorf("%d active controllers", len(controllers))
		}
		c := controllers[0]
		want := telemetry.Partitions{All: 1, UnderReplicated: under}
		if led != want || c.Partitions != want || c.Leaderless+c.Lossy != 0 || c.Brokers != 3 || c.Fenced != len(down) || !slices.Equal(unreached, gone) || len(all) > 0 {
			return fmt.Errorf("all together lead %+v, the controller tells %+v and does not reach %v, and %v", led, c, unreached, all)
		}
		return nil
	})
}

// checkTraffic looks at what the leader of the only partition tells of its followers, and at
// what they tell of it.
func (m *members) checkTraffic(leader int32) {
	m.t.Helper()
	eventually(m.t, func(context.Context) error {
		sent := map[string]int64{}
		for _, p := range m.brokers[leader].cluster().Peers {
			if p.Sent == 0 || p.Lag != 0 || p.LagMax != 0 {
				return fmt.Errorf("the leader tells %+v", p)
			}
			sent[p.Broker] = p.Sent
		}
		for id, b := range m.brokers {
			for _, p := range b.cluster().Peers {
				if id != leader && p.Broker == fmt.Sprint(leader) && p.Received == 0 {
					return fmt.Errorf("follower %d tells %+v, and the leader has sent %v", id, p, sent)
				}
			}
		}
		return nil
	})
}

// checkScraped looks at what is counted as it happens.
func (m *members) checkScraped() {
	m.t.Helper()
	changes := int64(0)
	for id, b := range m.brokers {
		w := httptest.NewRecorder()
		b.scrape().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		out := w.Body.String()
		if !strings.Contains(out, "brokerd_broker_heartbeat_seconds_count ") || strings.Contains(out, "brokerd_broker_heartbeat_seconds_count 0\n") {
			m.t.Errorf("broker %d tells of no heartbeat", id)
		}
		if strings.Count(out, `brokerd_peer_links_lost_total{broker="`) != 2 {
			m.t.Errorf("broker %d does not tell of its links to both others", id)
		}
		d := b.cluster().Decided
		changes += d.Shrinks + d.Expands + d.Clean
	}
	if changes == 0 {
		m.t.Error("no controller has changed anything")
	}
}

// What is counted of an image: of partitions that this broker leads, of those that nobody
// leads, and of all.
func TestCountImage(t *testing.T) {
	part := func(leader model.NodeID, replicas, isr []model.NodeID, change func(*image.Partition)) image.Partition {
		p := image.Partition{Replicas: replicas, Directories: make([]model.DirectoryID, len(replicas)), ISR: isr, Leader: leader}
		if change != nil {
			change(&p)
		}
		return p
	}
	ids := func(n ...model.NodeID) []model.NodeID { return n }
	records := []image.Record{
		&image.ClusterRecord{Cluster: image.Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}},
		&image.BrokerRecord{ID: 1, Epoch: 1}, &image.BrokerRecord{ID: 2, Epoch: 1, Fenced: true}, &image.BrokerRecord{ID: 3, Epoch: 1},
		&image.TopicRecord{ID: model.TopicID{1}, Name: "t", ReplicationFactorTarget: 3},
	}
	for i, p := range []image.Partition{
		part(1, ids(1, 2, 3), ids(1, 2, 3), nil),
		part(1, ids(1, 2, 3), ids(1, 3), nil),
		part(1, ids(1, 2, 3), ids(1), nil),                                                           // too few
		part(1, ids(1, 2), ids(1), nil),                                                              // below the target: enough
		part(1, ids(1, 2, 3, 4), ids(1, 2, 3), func(p *image.Partition) { p.Adding = ids(4) }),       // it is being added
		part(3, ids(1, 2, 3), ids(3), func(p *image.Partition) { p.Loss = &image.Loss{At: 12_500} }), // another one's
		part(model.NoNode, ids(1, 2, 3), ids(2), func(p *image.Partition) { p.Adding, p.Raised = ids(3), true }),
		part(model.NoNode, ids(2, 3), ids(2), func(p *image.Partition) { p.Loss = &image.Loss{At: 9_000} }),
	} {
		records = append(records, &image.PartitionRecord{Partition: model.Partition{Topic: model.TopicID{1}, Index: int32(i)}, Registration: p})
	}
	img, err := image.FromRecords(1, records...)
	if err != nil {
		t.Fatal(err)
	}
	c := &telling{node: 1}
	got := c.of(img)
	want := countedImage{
		led: telemetry.Partitions{All: 5, UnderReplicated: 3, UnderMinISR: 1}, leaderless: 1,
		all: telemetry.Controller{
			Partitions: telemetry.Partitions{All: 8, UnderReplicated: 6, UnderMinISR: 2},
			Leaderless: 2, BelowTarget: 3, Raised: 1, Lossy: 2, LastLossSeconds: 12.5, Brokers: 3, Fenced: 1,
		},
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if again := c.of(img); again != want || c.img != img {
		t.Errorf("again: %+v", again)
	}
}

func TestMembersAreTold(t *testing.T) {
	now := time.Unix(1000, 0)
	s := model.QuorumStatus{
		Leader: 1,
		Voters: []model.QuorumVoter{{ID: 1, LEO: 100}, {ID: 2, LEO: 90, LastContact: now.Add(-time.Second)}, {ID: 3, LEO: 40, LastContact: now.Add(-time.Minute)}},
		Observers: []model.QuorumVoter{
			{ID: 3, LEO: 99, LastContact: now}, // with another directory
			{ID: 4, LEO: 1},
		},
	}
	want := []telemetry.Member{{Broker: "2", Lag: 10, SilentSeconds: 1}, {Broker: "3", Lag: 1}, {Broker: "4", Lag: 99, SilentSeconds: -1}}
	if got := membersTold(s, now); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestLinksAreCounted(t *testing.T) {
	m := telemetry.NewMetrics()
	to := model.Address{Node: 2, Endpoint: "e"}
	for _, e := range []peer.Event{
		{Kind: peer.Reached, Address: to}, {Kind: peer.Lost, Address: to}, {Kind: peer.Refused, Address: to}, {Kind: peer.Unreached, Address: to},
		{Kind: peer.Unreached, Address: model.Address{Node: model.NoNode, Endpoint: "a seed"}},
		{Kind: peer.Rejected, Peer: transport.Peer{}, Err: peer.ErrForeign}, {Kind: peer.Rejected, Err: fmt.Errorf("a seed: %w", peer.ErrSelf)},
	} {
		countLinks(m.Peers(), e)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`links_made_total{broker="2"} 1`, `links_lost_total{broker="2"} 1`, `failed_dials_total{broker="2"} 2`, `links_rejected_total 1`,
	} {
		if !strings.Contains(w.Body.String(), "brokerd_peer_"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(w.Body.String(), `broker="-1"`) {
		t.Error("a seed has a broker's label")
	}
}
