package transporttest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// broken is the memory network with one rule broken.
type broken struct {
	name string
	// caughtBy is the case that must fail: the one that names the rule.
	caughtBy string
	// says is part of what the case must say.
	says string
	// fault makes the fault anew: what all the transports of one run do otherwise.
	fault func() fault
	// aim changes the target; nil leaves it as it is.
	aim func(t *testing.T, target *transporttest.Target, network *memnet.Network)
}

// fault is what a transport does otherwise than the memory network; what is nil it does
// as well.
type fault struct {
	capabilities func(has transport.Capabilities) transport.Capabilities
	dial         func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error)
	accept       func(ctx context.Context, n *brokenNode) (transport.Link, error)
	close        func(n *brokenNode) error
	made         func(l *brokenLink) // a link was made, or accepted
	send         func(ctx context.Context, l *brokenLink, parts [][]byte) error
	receive      func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error)
	end          func(l *brokenLink) error
	peer         func(p transport.Peer, l *brokenLink) transport.Peer
	lane         func(lane transport.Lane) transport.Lane
}

// brokenNode is a transport with a fault.
type brokenNode struct {
	transport.Transport
	fault fault
	id    transport.Identity

	mu    sync.Mutex
	links []*brokenLink // all that it ever had
	n     int           // of whatever the fault counts
}

// brokenLink is one end of a link with a fault.
type brokenLink struct {
	transport.Link
	node    *brokenNode
	dialled bool

	mu   sync.Mutex
	n    int      // of whatever the fault counts
	kept [][]byte // whatever the fault keeps
}

func (n *brokenNode) link(l transport.Link, dialled bool, err error) (transport.Link, error) {
	if err != nil {
		return nil, err
	}
	made := &brokenLink{Link: l, node: n, dialled: dialled}
	n.mu.Lock()
	n.links = append(n.links, made)
	n.mu.Unlock()
	if n.fault.made != nil {
		n.fault.made(made)
	}
	return made, nil
}

// all returns the links that the node ever had.
func (n *brokenNode) all() []*brokenLink {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.links)
}

// count counts, from 1 on.
func (n *brokenNode) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.n++
	return n.n
}

// count counts, from 1 on.
func (l *brokenLink) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return l.n
}

// keep keeps data, and returns what was kept before.
func (l *brokenLink) keep(data []byte) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.kept
	l.kept = append(l.kept[:len(l.kept):len(l.kept)], data)
	return before
}

// take returns what was kept, and keeps no more.
func (l *brokenLink) take() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.kept
	l.kept = nil
	return before
}

func (n *brokenNode) Capabilities() transport.Capabilities {
	if n.fault.capabilities != nil {
		return n.fault.capabilities(n.Transport.Capabilities())
	}
	return n.Transport.Capabilities()
}

func (n *brokenNode) Dial(ctx context.Context, to transport.Target) (transport.Link, error) {
	dial := n.fault.dial
	if dial == nil {
		l, err := n.Transport.Dial(ctx, to)
		return n.link(l, true, err)
	}
	l, err := dial(ctx, n, to)
	if made, again := l.(*brokenLink); again {
		return made, err
	}
	return n.link(l, true, err)
}

func (n *brokenNode) Accept(ctx context.Context) (transport.Link, error) {
	accept := n.fault.accept
	if accept == nil {
		l, err := n.Transport.Accept(ctx)
		return n.link(l, false, err)
	}
	l, err := accept(ctx, n)
	return n.link(l, false, err)
}

func (n *brokenNode) Close() error {
	if n.fault.close != nil {
		return n.fault.close(n)
	}
	return n.Transport.Close()
}

func (l *brokenLink) Send(ctx context.Context, parts ...[]byte) error {
	if l.node.fault.send != nil {
		return l.node.fault.send(ctx, l, parts)
	}
	return l.Link.Send(ctx, parts...)
}

func (l *brokenLink) Receive(ctx context.Context, room transport.Room) ([]byte, error) {
	if l.node.fault.receive != nil {
		return l.node.fault.receive(ctx, l, room)
	}
	return l.Link.Receive(ctx, room)
}

func (l *brokenLink) Close() error {
	if l.node.fault.end != nil {
		return l.node.fault.end(l)
	}
	return l.Link.Close()
}

func (l *brokenLink) Peer() transport.Peer {
	if l.node.fault.peer != nil {
		return l.node.fault.peer(l.Link.Peer(), l)
	}
	return l.Link.Peer()
}

func (l *brokenLink) Lane() transport.Lane {
	if l.node.fault.lane != nil {
		return l.node.fault.lane(l.Link.Lane())
	}
	return l.Link.Lane()
}

// target is the memory network with the fault.
func (b broken) target(t *testing.T) transporttest.Target {
	t.Helper()
	opt := memnet.NetworkOptions{Seed: 1}
	if b.caughtBy == "dial-unaccepted" || b.caughtBy == "kill-busy" {
		opt.DialTimeout = 300 * time.Millisecond // sooner than the kit gives a dial up
	}
	network := memnet.NewNetwork(opt)
	target := on(network)
	var f fault
	if b.fault != nil {
		f = b.fault()
	}
	open := func(inner func(context.Context, transport.Identity) (transport.Transport, error)) func(context.Context, transport.Identity) (transport.Transport, error) {
		return func(ctx context.Context, id transport.Identity) (transport.Transport, error) {
			opened, err := inner(ctx, id)
			if err != nil {
				return nil, err
			}
			return &brokenNode{Transport: opened, fault: f, id: id}, nil
		}
	}
	target.Open, target.Outsider = open(target.Open), open(target.Outsider)
	if b.aim != nil {
		b.aim(t, &target, network)
	}
	return target
}

// brokenTransports breaks each rule that has a case.
func brokenTransports() []broken {
	return slices.Concat(
		brokenMessages(), brokenOrder(), brokenRooms(), brokenMemory(), brokenLanes(),
		brokenProviders(), brokenDials(), brokenTargets(), brokenStrangers(),
		brokenContexts(), brokenEnds(), brokenDeaths(), brokenCloses(),
	)
}

// measured are the cases that measure what the process uses, or send much: they run alone.
var measured = []string{
	"largest", "room-first", "send-waits-large", "memory", "memory-empty", "memory-idle", "stranger-memory",
	"context-receive-large",
	"close-leaves", "idle",
}

// heavy are the cases that take long where much else runs; their transports fail at once.
var heavy = []string{
	"sizes", "largest", "room-first", "order", "order-sizes", "order-backlog", "links",
	"send-waits", "send-waits-large", "memory", "memory-empty", "memory-idle",
}

const (
	// little is the kit's patience with a transport that is known to be broken: most of them
	// are waited for in vain.
	little = 2 * time.Second
	// more is its patience where a busy machine may have come between. It is less than the
	// time for which transports here do nothing.
	more = 8 * time.Second
	// tries is how often a case is tried again: a busy machine may not get to what is
	// wrong in the time that it is given, or fail at something that is right.
	tries = 3
)

// besideMax is how many broken transports are caught at one time: most of them are waited
// for in vain.
const besideMax = 16

// TestBrokenTransportsAreCaught runs, on each broken transport, the case that names its
// rule, which must fail for that reason.
func TestBrokenTransportsAreCaught(t *testing.T) {
	all := brokenTransports()
	if raceEnabled { // what a process uses then is the detector's too, and little is sent in time
		all = slices.DeleteFunc(all, func(b broken) bool { return slices.Contains(measured, b.caughtBy) })
	}
	reports := make([]transporttest.Report, len(all))
	turns := make(chan struct{}, besideMax)
	var group sync.WaitGroup
	for i, b := range all {
		if slices.Contains(measured, b.caughtBy) {
			reports[i] = b.again(t, b.check(t, little))
		}
	}
	for i, b := range all {
		if !slices.Contains(measured, b.caughtBy) {
			group.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				reports[i] = b.check(t, little)
			})
		}
	}
	group.Wait()
	for i, b := range all {
		t.Run(b.name, func(t *testing.T) {
			if !slices.Contains(measured, b.caughtBy) {
				reports[i] = b.again(t, reports[i])
			}
			if missed := b.missed(reports[i]); missed != "" {
				t.Fatal(missed)
			}
			t.Logf("%s, after %v: %s", b.caughtBy, reports[i].Results[0].Duration, reports[i].Results[0].Message)
		})
	}
}

// again tries a case alone, with more patience, that did not catch the transport.
func (b broken) again(t *testing.T, report transporttest.Report) transporttest.Report {
	for range tries {
		missed := b.missed(report)
		if missed == "" {
			break
		}
		t.Logf("%s is tried again: %s", b.name, missed)
		report = b.check(t, more)
	}
	return report
}

// check runs the case that is to catch the transport.
func (b broken) check(t *testing.T, patience time.Duration) transporttest.Report {
	opt := transporttest.Options{
		Filter:      func(name string) bool { return name == b.caughtBy },
		Patience:    patience,
		CaseTimeout: 10 * patience,
	}
	if slices.Contains(heavy, b.caughtBy) {
		opt.Patience, opt.CaseTimeout = 0, 0
	}
	return transporttest.Check(t.Context(), b.target(t), opt)
}

// missed says what is missing of the case's failure, for the reason that the transport is
// broken; nothing is once it was caught.
func (b broken) missed(report transporttest.Report) string {
	if len(report.Results) != 1 {
		return fmt.Sprintf("%d cases of the name %q were run", len(report.Results), b.caughtBy)
	}
	result := report.Results[0]
	if result.Status != transporttest.Failed {
		return fmt.Sprintf("the case %s %v %s", b.caughtBy, result.Status, result.Message)
	}
	if !strings.Contains(result.Message, b.says) {
		return fmt.Sprintf("%s fails for another reason than %q: %s", b.caughtBy, b.says, result.Message)
	}
	return ""
}

// TestEveryCaseCanFail: for each case, some transport is broken.
func TestEveryCaseCanFail(t *testing.T) {
	caught := map[string]bool{}
	for _, b := range brokenTransports() {
		caught[b.caughtBy] = true
	}
	known := map[string]bool{}
	for _, c := range transporttest.Cases() {
		if known[c.Name] || c.About == "" {
			t.Errorf("the case %q is named twice or says nothing about itself", c.Name)
		}
		known[c.Name] = true
		if !caught[c.Name] {
			t.Errorf("no transport is broken so that %s fails", c.Name)
		}
	}
}

// TestReportNeedsAPass checks that a run in which nothing passed is no success.
func TestReportNeedsAPass(t *testing.T) {
	none := transporttest.Report{Results: []transporttest.Result{{Status: transporttest.NotApplicable}}}
	if none.OK() {
		t.Error("a report without a passed case is OK")
	}
	failed := transporttest.Report{Results: []transporttest.Result{{Status: transporttest.Passed}, {Status: transporttest.Failed}}}
	if failed.OK() {
		t.Error("a report with a failed case is OK")
	}
}
