package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What others met with cuts between brokers, each with its right outcome.

// startThree starts three brokers that all vote, with a topic of which each leads a
// partition.
func startThree(t *testing.T) *cluster {
	t.Helper()
	c, err := newCluster(brokerd, t.TempDir(), newLedger(partitions))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.stop()
		for _, what := range c.ledger.told {
			t.Error(what)
		}
	})
	c.seedAll()
	for _, step := range []func() error{c.startAll, c.awaitVoters, func() error { return c.createTopic(brokers) }, c.awaitInSync} {
		if err := step(); err != nil {
			t.Fatalf("start three brokers: %v", err)
		}
	}
	return c
}

// asked is what the cluster says of the topic.
func asked(t *testing.T, c *cluster) state {
	t.Helper()
	var s state
	if err := eventually(servedMax, func() (err error) {
		s, err = c.state(0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// writer sends to partitions of the topic, without an identity.
func writer(t *testing.T, c *cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	w, err := newClient(c.addrs(), append([]kgo.Opt{
		kgo.DefaultProduceTopic(topicName), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// write sends n values to a partition, and returns the offset after them.
func write(t *testing.T, w *kgo.Client, partition int32, what string, n int) (next int64) {
	t.Helper()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Partition: partition, Value: fmt.Appendf(nil, "%s %d", what, i)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), servedMax)
	defer cancel()
	for _, r := range w.ProduceSync(ctx, rs...) {
		if r.Err != nil {
			t.Fatalf("%s: %v", what, r.Err)
		}
		next = max(next, r.Record.Offset+1)
	}
	return next
}

// readings are what a reader has seen of one partition.
type readings struct {
	mu     sync.Mutex
	values []string // by offset
	errs   []error
}

// readAlong reads a partition from its start until the test ends.
func readAlong(t *testing.T, c *cluster, partition int32) *readings {
	t.Helper()
	r, err := newClient(c.addrs(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topicName: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	out := &readings{}
	var reading sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	reading.Go(func() {
		for ctx.Err() == nil {
			out.take(r.PollFetches(ctx))
		}
	})
	t.Cleanup(func() {
		stop()
		reading.Wait()
		r.Close()
	})
	return out
}

func (r *readings) take(fs kgo.Fetches) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fs.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.Canceled) {
			r.errs = append(r.errs, err)
		}
	})
	fs.EachRecord(func(rec *kgo.Record) {
		if rec.Offset != int64(len(r.values)) {
			r.errs = append(r.errs, fmt.Errorf("offset %d comes where %d was next", rec.Offset, len(r.values)))
		}
		r.values = append(r.values, string(rec.Value))
	})
}

// upTo waits until all below an offset is read, and returns it.
func (r *readings) upTo(t *testing.T, end int64) []string {
	t.Helper()
	var out []string
	if err := eventually(servedMax, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if int64(len(r.values)) < end {
			return fmt.Errorf("%d of %d records are read: %w", len(r.values), end, errors.Join(r.errs...))
		}
		out = slices.Clone(r.values)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// FR-24: a leader acknowledges records that one of its followers does not hear of, and dies;
// that one leads next. Those records are lost, as acks=1 allows, and others take their offsets;
// but nobody has read them, and no offset is ever seen with two values. (redpanda 14794, 15863)
func TestFR24NoOffsetHasTwoValues(t *testing.T) {
	const rounds, most, each = 2, 6, 20
	c := startThree(t)
	read := readAlong(t, c, 0)
	all, one := writer(t, c, kgo.RequiredAcks(kgo.AllISRAcks())), writer(t, c, kgo.RequiredAcks(kgo.LeaderAck()))
	lost, end := 0, int64(0)
	for round := 0; lost < rounds && round < most; round++ {
		what := fmt.Sprintf("round %d", round)
		for _, w := range []*kgo.Client{all, one} { // they know who leads
			write(t, w, 0, what+", at first", 1)
		}
		s := asked(t, c)
		leader := s.leaders[0]
		next := s.replicas[0][slices.IndexFunc(s.replicas[0], func(n int32) bool { return int(n) != leader })]
		if err := c.sever(leader, int(next)); err != nil {
			t.Fatal(err)
		}
		below := write(t, one, 0, what+", by one", each)
		if err := c.node(leader).end(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if end = write(t, all, 0, what+", by all", each/2); end-each/2 < below {
			lost++
		}
		if _, err := c.mend(true); err != nil { // not before: a kernel sends what the dead had still to send
			t.Fatal(err)
		}
		if err := c.node(leader).start(); err != nil {
			t.Fatal(err)
		}
		if err := c.awaitInSync(); err != nil {
			t.Fatal(err)
		}
	}
	if lost < rounds {
		t.Errorf("records were lost in %d of %d rounds: this is another story", lost, most)
	}
	first, again := read.upTo(t, end), readAlong(t, c, 0).upTo(t, end)
	for i := range end {
		if first[i] != again[i] {
			t.Errorf("offset %d was %q and is %q", i, first[i], again[i])
		}
	}
	read.mu.Lock()
	defer read.mu.Unlock()
	for _, err := range read.errs {
		t.Errorf("the reader: %v", err)
	}
}

// cutFor is how long a broker is without its controller.
const cutFor = 3 * time.Second

// FR-29: a broker cannot reach the active controller, and reaches all else. It is fenced, and
// others lead what it led; what a client that has not heard of that sends to it is not
// acknowledged. When the cut ends it serves again by itself, under the same controller.
// (librdkafka 4340)
func TestFR29BrokerWithoutItsController(t *testing.T) {
	c := startThree(t)
	q, err := c.quorum()
	if err != nil {
		t.Fatal(err)
	}
	s := asked(t, c)
	p := slices.IndexFunc(s.leaders, func(n int) bool { return n != q.leader })
	cut := s.leaders[p]
	all := writer(t, c)
	write(t, all, int32(p), "before", 1)
	stale := writer(t, c, kgo.SeedBrokers(c.node(cut).clients), kgo.RecordRetries(0), kgo.ProduceRequestTimeout(time.Second),
		kgo.RequestTimeoutOverhead(time.Second), kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != c.node(cut).clients {
				return nil, errors.New("it knows of one broker alone")
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		}))
	write(t, stale, int32(p), "stale, before", 1)
	pid := c.node(cut).pid()
	for _, way := range [][2]int{{cut, q.leader}, {q.leader, cut}} {
		if err := c.sever(way[0], way[1]); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := eventually(servedMax, func() error {
		now, err := c.state(q.leader)
		if err == nil && (now.leaders[p] == cut || now.leaders[p] < 0 || slices.Contains(now.isr[p], int32(cut))) {
			err = fmt.Errorf("leader %d, in sync %v, and broker %d is cut off", now.leaders[p], now.isr[p], cut)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	moved := time.Since(began)
	refused := 0
	for time.Since(began) < cutFor {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		r := &kgo.Record{Partition: int32(p), Value: []byte("stale")}
		if err := stale.ProduceSync(ctx, r).FirstErr(); err == nil {
			t.Errorf("broker %d, which is fenced, acknowledged a record at %d", cut, r.Offset)
		} else {
			refused++
		}
		cancel()
	}
	end := write(t, all, int32(p), "meanwhile", 1)
	if _, err := c.mend(false); err != nil {
		t.Fatal(err)
	}
	if err := c.awaitInSync(); err != nil {
		t.Error(err)
	}
	if now := c.node(cut).pid(); now != pid {
		t.Errorf("broker %d is process %d, and was %d: it was started again", cut, now, pid)
	}
	if now, err := c.quorum(); err != nil || now.leader != q.leader {
		t.Errorf("the controller is %d (%v), and was %d", now.leader, err, q.leader)
	}
	if got := readAlong(t, c, int32(p)).upTo(t, end); !slices.Equal(got[:end], []string{"before 0", "stale, before 0", "meanwhile 0"}) {
		t.Errorf("the partition has %q", got)
	}
	t.Logf("others led after %s; %d records refused", moved.Round(time.Millisecond), refused)
}
