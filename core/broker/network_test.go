package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/peer"
)

// memberImage is metadata with members, of which each is node and endpoint, and their brokers.
func memberImage(t *testing.T, members ...model.Address) *image.Image {
	t.Helper()
	records := []image.Record{&image.ClusterRecord{Cluster: image.Cluster{ID: "test", FeatureLevel: 1}}}
	seen := map[model.NodeID]bool{}
	for i, m := range members {
		records = append(records, &image.MemberRecord{Directory: model.DirectoryID{byte(i + 1)}, Node: m.Node, Endpoint: m.Endpoint})
		if !seen[m.Node] {
			seen[m.Node] = true
			records = append(records, &image.BrokerRecord{ID: m.Node, Epoch: model.BrokerEpoch(m.Node) + 100, Directories: []model.DirectoryID{{byte(i + 101)}}})
		}
	}
	img, err := image.FromRecords(7, records...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

type located struct{ said []string }

func (l *located) Locate(node model.NodeID, endpoint string) {
	l.said = append(l.said, fmt.Sprintf("%d=%s", node, endpoint))
}

// The links are told where nodes are, and when that changes.
func TestBook(t *testing.T) {
	var links located
	k := &book{links: &links, known: map[model.NodeID]string{}}
	for _, step := range []struct {
		members []model.Address
		want    []string
	}{
		{[]model.Address{{Endpoint: "a:1", Node: 1}, {Endpoint: "b:1", Node: 2}}, []string{"1=a:1", "2=b:1"}},
		{[]model.Address{{Endpoint: "a:1", Node: 1}, {Endpoint: "b:1", Node: 2}}, nil},
		{[]model.Address{{Endpoint: "a:1", Node: 1}, {Endpoint: "b:2", Node: 2}}, []string{"2=b:2"}},
		// A node that comes back with another directory, and is reached elsewhere.
		{[]model.Address{{Endpoint: "a:1", Node: 1}, {Endpoint: "b:2", Node: 2}, {Endpoint: "b:3", Node: 2}}, []string{"2=b:3"}},
		{[]model.Address{{Endpoint: "a:1", Node: 1}, {Node: 2}}, []string{"2="}},
	} {
		links.said = nil
		k.apply(memberImage(t, step.members...))
		slices.Sort(links.said)
		if !slices.Equal(links.said, step.want) {
			t.Errorf("%v: told %v, want %v", step.members, links.said, step.want)
		}
	}
}

// fakeNode is a node of the quorum that notes what is started.
type fakeNode struct {
	image   *image.Image
	leading bool
	started []controller.Op
}

func (n *fakeNode) Start(op controller.Op, _ <-chan struct{}, _ func(controller.Answer)) {
	n.started = append(n.started, op)
}
func (n *fakeNode) Leading() bool       { return n.leading }
func (n *fakeNode) Image() *image.Image { return n.image }

// Only the active controller fences, and only who is known to be gone from where it was.
func TestDeaths(t *testing.T) {
	img := memberImage(t, model.Address{Endpoint: "a:1", Node: 1}, model.Address{Endpoint: "b:1", Node: 2})
	at := model.Address{Endpoint: "b:1", Node: 2}
	for name, tc := range map[string]struct {
		event  peer.Event
		leads  bool
		fences bool
	}{
		"refused":                {peer.Event{Kind: peer.Refused, Address: at}, true, true},
		"refused, and not asked": {peer.Event{Kind: peer.Refused, Address: at}, false, false},
		"lost":                   {peer.Event{Kind: peer.Lost, Address: at, Err: errors.New("reset")}, true, false},
		"unreached":              {peer.Event{Kind: peer.Unreached, Address: at}, true, false},
		"where it was before":    {peer.Event{Kind: peer.Refused, Address: model.Address{Endpoint: "b:0", Node: 2}}, true, false},
		"a seed":                 {peer.Event{Kind: peer.Refused, Address: model.Address{Endpoint: "b:1", Node: model.NoNode}}, true, false},
		"no broker":              {peer.Event{Kind: peer.Refused, Address: model.Address{Endpoint: "c:1", Node: 3}}, true, false},
	} {
		n := &fakeNode{image: img, leading: tc.leads}
		(&deaths{node: n}).happened(tc.event)
		want := []controller.Op{controller.FenceBroker{ID: 2, Epoch: 102}}
		if !tc.fences {
			want = nil
		}
		if !slices.Equal(n.started, want) {
			t.Errorf("%s: %v, want %v", name, n.started, want)
		}
	}
}

// What is warned of follows from how many brokers there are, and how many of them are there.
func TestReplicationWarnings(t *testing.T) {
	var nodes []model.Address
	for n := model.NodeID(1); n <= 3; n++ {
		nodes = append(nodes, model.Address{Endpoint: fmt.Sprintf("n:%d", n), Node: n})
		img := memberImage(t, nodes...)
		got := strings.Join(replicationWarnings(img, config.Default()), "\n")
		for about, want := range map[string]bool{"not replicated": n == 1, "a third is missing": n == 2, "not there": false} {
			if strings.Contains(got, about) != want {
				t.Errorf("%d brokers: %q; is it to say %q? %t", n, got, about, want)
			}
		}
	}
	delta := image.NewDelta(memberImage(t, nodes...), 8)
	if err := delta.Apply(&image.BrokerFenceRecord{ID: 2, Epoch: 102, Fenced: true}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(replicationWarnings(delta.Image(), config.Default()), "\n"); !strings.Contains(got, "not there, or not yet: 2;") || strings.Contains(got, "not replicated") {
		t.Errorf("broker 2 is fenced: %q", got)
	}
}
