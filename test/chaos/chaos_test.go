package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brokerd/brokerd/test/rig"
)

// brokerd is the executable that all tests run.
var brokerd string

func TestMain(m *testing.M) {
	network := os.Getenv("BROKERD_CHAOS_NET")
	if network == "" {
		network = "namespaces"
	}
	err := chooseNetwork(network)
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp("", "brokerd-chaos-test-")
	}
	if err == nil {
		brokerd = filepath.Join(dir, "brokerd")
		err = build(brokerd, rig.Brokerd)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// shortEvents are all kinds that the network can do, which without namespaces are fewer.
func shortEvents() []event {
	all := events()
	if !inHub() {
		fmt.Fprintln(os.Stderr, "WITHOUT NETWORK NAMESPACES, AS ASKED FOR: no lane is cut alone")
		all = slices.DeleteFunc(all, func(e event) bool { return e.lane })
	}
	return all
}

// TestChaos has each kind of event once, all brokers restarted under three clients, and one
// broker become three. What decides is drawn; the output says what it was.
func TestChaos(t *testing.T) {
	var out bytes.Buffer
	opts := options{
		events: shortEvents(), count: 1, growths: 1, rolling: 1, longest: time.Second, hurry: 1,
		seed: uint64(time.Now().UnixNano() % 100_000), dir: t.TempDir(), brokerd: brokerd, out: &out,
	}
	broken, err := chaos(t.Context(), opts)
	if err != nil || broken {
		t.Errorf("a promise was broken, or not tried: %v\n%s", err, out.String())
		return
	}
	t.Log(out.String())
}

// TestNoHurry: events of which none is the last are refused before any broker is started.
func TestNoHurry(t *testing.T) {
	opts := options{events: shortEvents(), hurry: 0, dir: t.TempDir(), brokerd: brokerd, out: t.Output()}
	if _, err := chaos(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "-hurry 0") {
		t.Errorf("error %v", err)
	}
}

// silentFor is how long a broker is watched that is to found nothing.
const silentFor = 2 * time.Second

// TestWipedVoterFoundsNothing: of two brokers, the one that alone votes loses its disk. It comes
// back where the other one knows the cluster, and never begins another one.
func TestWipedVoterFoundsNothing(t *testing.T) {
	c, err := newCluster(brokerd, t.TempDir(), newLedger(partitions))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	first, second := c.node(1), c.node(2)
	first.alone, second.seeds = true, []string{first.reached}
	for _, b := range []*node{first, second} {
		if err := b.start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.createTopic(1); err != nil {
		t.Fatal(err)
	}
	var before state
	err = eventually(servedMax, func() error {
		before, err = c.state(2)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := first.wipe(); err != nil {
		t.Fatal(err)
	}
	first.alone, first.seeds = false, []string{second.reached}
	if err := first.start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < silentFor; wait(pollEvery) {
		if s, _ := c.state(1); s.clusterID != "" && s.clusterID != before.clusterID {
			t.Fatalf("broker 1 is of cluster %s, and was of %s\n%s", s.clusterID, before.clusterID, first.tail())
		}
	}
}
