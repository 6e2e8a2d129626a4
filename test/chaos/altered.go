package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What is beside the load on brokers of a main of the tests' own (package altered).
const (
	// keptTopic has records of a week's retention, and a group's offset in it.
	keptTopic     = "kept"
	keptRecords   = 40
	keptRetention = 7 * 24 * time.Hour
	keptGroup     = "keeper"
	keptOffset    = 12
	// passingTopic has records that are to go soon, whatever the clock does.
	passingTopic     = "passing"
	passingRetention = time.Second
	// zombieTopic is written to at brokers that do not lead it any more.
	zombieTopic = "zombie"
	// jumpMin and jumpMax are how wrong a wall clock is set. The latter is less than half of
	// keptRetention, and of what brokers' certificates bear.
	jumpMin, jumpMax = time.Minute, 3 * 24 * time.Hour
	zombieTimeout    = time.Second
)

// alteredBroker is the main of the tests' own.
const alteredBroker = "github.com/brokerd/brokerd/test/chaos/altered"

// alter has the brokers be of the main of the tests' own. It comes before they start.
func (c *cluster) alter(dir string) error {
	for _, b := range c.nodes {
		b.clock = filepath.Join(dir, fmt.Sprintf("clock-%d", b.n))
		if err := os.WriteFile(b.clock, make([]byte, 8), 0o600); err != nil {
			return err
		}
		// Clients' clocks are right, and so may differ by as much.
		b.settings = append(b.settings, "log.retention.check.interval.ms=200", "log.message.timestamp.after.max.ms="+strconv.FormatInt(2*jumpMax.Milliseconds(), 10))
	}
	return nil
}

// setClock has a broker's wall clock be wrong by some time.
func (b *node) setClock(by time.Duration) error {
	f, err := os.OpenFile(b.clock, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	var seconds [8]byte
	binary.NativeEndian.PutUint64(seconds[:], uint64(by/time.Second))
	_, err = f.WriteAt(seconds[:], 0) // at once: it is what one page has
	return errors.Join(err, f.Close())
}

// controlPort is where a broker listens for the control lane.
func (b *node) controlPort() int {
	_, port, _ := net.SplitHostPort(b.transport)
	n, _ := strconv.Atoi(port)
	return n + 1
}

// keep makes the topics beside the load's, and what they are to keep.
func (r *run) keep() error {
	ctx, cancel := context.WithTimeout(context.Background(), inSyncMax)
	defer cancel()
	admin := kadm.NewClient(r.asking)
	set := func(retention time.Duration) map[string]*string {
		ms, segment, minISR := strconv.FormatInt(retention.Milliseconds(), 10), "1048576", "2"
		return map[string]*string{"retention.ms": &ms, "segment.bytes": &segment, "min.insync.replicas": &minISR}
	}
	for _, t := range []struct {
		name       string
		partitions int32
		retention  time.Duration
	}{{keptTopic, 1, keptRetention}, {passingTopic, 1, passingRetention}, {zombieTopic, partitions, keptRetention}} {
		if _, err := admin.CreateTopic(ctx, t.partitions, brokers, set(t.retention), t.name); err != nil {
			return fmt.Errorf("create topic %s: %w", t.name, err)
		}
	}
	c, err := newClient(r.addrs(), kgo.DefaultProduceTopic(keptTopic), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer c.Close()
	for range keptRecords { // several segments
		if err := c.ProduceSync(ctx, &kgo.Record{Value: make([]byte, 100_000)}).FirstErr(); err != nil {
			return fmt.Errorf("write to %s: %w", keptTopic, err)
		}
	}
	var offsets kadm.Offsets
	offsets.AddOffset(keptTopic, 0, keptOffset, -1)
	return eventually(servedMax, func() error {
		return admin.CommitAllOffsets(ctx, keptGroup, offsets)
	})
}

// kept holds what the topics beside the load's have against what they are to have.
func (r *run) kept() error {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	admin := kadm.NewClient(r.asking)
	first, err := admin.ListStartOffsets(ctx, keptTopic)
	if err != nil {
		return err
	}
	last, err := admin.ListEndOffsets(ctx, keptTopic)
	if err != nil {
		return err
	}
	from, ok := first.Lookup(keptTopic, 0)
	to, there := last.Lookup(keptTopic, 0)
	if !ok || !there || from.Err != nil || to.Err != nil {
		return fmt.Errorf("ask for the offsets of %s: %w", keptTopic, errors.Join(from.Err, to.Err))
	}
	if from.Offset != 0 || to.Offset != keptRecords {
		r.ledger.violate(clockHurt, "%s has offsets %d to %d of %d, and a retention of %s", keptTopic, from.Offset, to.Offset, keptRecords, keptRetention)
	}
	committed, err := admin.FetchOffsets(ctx, keptGroup)
	if err != nil {
		return err
	}
	if o, ok := committed.Lookup(keptTopic, 0); o.Err != nil {
		return o.Err
	} else if !ok || o.At != keptOffset {
		r.ledger.violate(clockHurt, "group %s is at %d, and committed %d", keptGroup, o.At, keptOffset)
	}
	return nil
}

// passes writes to the topic whose records are to go, and waits until they do.
func (r *run) passes() error {
	c, err := newClient(r.addrs(), kgo.DefaultProduceTopic(passingTopic), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), inSyncMax)
	defer cancel()
	var last int64
	admin := kadm.NewClient(c)
	return eventually(inSyncMax, func() error {
		made, err := c.ProduceSync(ctx, &kgo.Record{Value: make([]byte, 600_000)}).First() // each begins a segment
		if err != nil {
			return err
		}
		if last == 0 {
			last = made.Offset
		}
		first, err := admin.ListStartOffsets(ctx, passingTopic)
		if err != nil {
			return err
		}
		if from, ok := first.Lookup(passingTopic, 0); !ok || from.Err != nil || from.Offset <= last {
			return fmt.Errorf("records of %s stay from %d on (%w), though its retention is %s and %d was written before", passingTopic, from.Offset, from.Err, passingRetention, last)
		}
		return nil
	})
}

// jump draws how wrong a clock is: minutes as often as days.
func (r *run) jump() time.Duration {
	d := time.Duration(float64(jumpMin) * math.Pow(float64(jumpMax)/float64(jumpMin), r.rng.Float64()))
	if r.rng.IntN(2) == 0 {
		return -d
	}
	return d
}

// jumpClock sets the wall clock of one broker, or of each, to and fro, and leaves it wrong.
// Nothing may come of it: all replicas stay in sync.
func (r *run) jumpClock() (string, error) {
	nodes := []*node{r.node(r.any())}
	what := fmt.Sprintf("broker %d", nodes[0].n)
	if r.rng.IntN(3) == 0 {
		nodes, what = r.nodes, "all"
	}
	for range 1 + r.rng.IntN(3) {
		for _, b := range nodes {
			by := r.jump()
			if r.rng.IntN(4) == 0 {
				by = 0
			}
			if err := b.setClock(by); err != nil {
				return what, err
			}
			what += fmt.Sprintf(", %s", by.Round(time.Second))
		}
		if err := r.staysInSync(r.between(r.longest/10, r.longest/2)); err != nil {
			r.ledger.violate(clockHurt, "%s: %v", what, err)
		}
	}
	if err := eventually(servedMax, r.kept); err != nil {
		return what, err
	}
	if r.rng.IntN(4) == 0 {
		return what, r.passes()
	}
	return what, nil
}

// staysInSync watches the replicas for a while.
func (r *run) staysInSync(d time.Duration) error {
	for began := time.Now(); time.Since(began) < d; wait(pollEvery) {
		s, err := r.state(0)
		if err != nil {
			continue // it did not answer in time; clients tell of errors that matter
		}
		for p, isr := range s.isr {
			if len(isr) != brokers || s.leaders[p] < 0 {
				return fmt.Errorf("partition %d has leader %d and %v in sync", p, s.leaders[p], isr)
			}
		}
	}
	return nil
}

// cutController cuts a broker's control lane to the active controller.
func (r *run) cutController() (string, error) {
	var q quorum
	if err := eventually(servedMax, func() (err error) {
		q, err = r.quorum()
		if err == nil && q.leader < 1 {
			err = errors.New("nobody leads the quorum")
		}
		return err
	}); err != nil {
		return "", err
	}
	m := r.others(q.leader)
	n := m[r.rng.IntN(len(m))]
	return r.cutControl(n, []int{q.leader}, fmt.Sprintf("broker %d from the controller %d", n, q.leader))
}

// cutControllers cuts a broker's control lanes to all others.
func (r *run) cutControllers() (string, error) {
	n := r.any()
	return r.cutControl(n, r.others(n), fmt.Sprintf("broker %d from all controllers", n))
}

// cutControl cuts the control lanes between a broker and others, while its data lane and its
// clients go on: it is fenced, acknowledges nothing of what others lead by then, and is
// unfenced by itself afterwards.
func (r *run) cutControl(n int, from []int, what string) (string, error) {
	if err := r.awaitInSync(); err != nil {
		return what, err
	}
	for _, m := range from {
		if err := errors.Join(r.severPort(n, m, r.node(m).controlPort()), r.severPort(m, n, r.node(n).controlPort())); err != nil {
			return what, err
		}
	}
	began := time.Now()
	witness := r.others(n)[0]
	if len(from) == 1 && witness == from[0] {
		witness = r.others(n)[1]
	}
	err := eventually(servedMax, func() error { return r.fenced(n, witness) })
	what += fmt.Sprintf(", fenced after %s", time.Since(began).Round(time.Millisecond))
	if err == nil {
		var refused int
		refused, err = r.zombieWrites(n, witness)
		what += fmt.Sprintf(", %d writes refused", refused)
	}
	_, mended := r.mend(false)
	return what, errors.Join(err, mended)
}

// fenced is nil when a broker is in sync nowhere, as another one says.
func (r *run) fenced(n, witness int) error {
	s, err := r.state(witness)
	if err != nil {
		return err
	}
	for p, isr := range s.isr {
		for _, m := range isr {
			if int(m) == n || s.leaders[p] == n {
				return fmt.Errorf("partition %d has leader %d and %v in sync", p, s.leaders[p], isr)
			}
		}
	}
	return nil
}

// errElsewhere is a connection to another broker than the one that is to be written to.
var errElsewhere = errors.New("that is another broker")

// zombieWrites writes with acks=all at a broker that leads nothing, and never at another. It
// returns how many writes failed, as all have to.
func (r *run) zombieWrites(n, witness int) (refused int, err error) {
	to := r.node(n).clients
	c, err := newClient([]string{to}, kgo.DefaultProduceTopic(zombieTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0), kgo.ProduceRequestTimeout(zombieTimeout), kgo.RecordDeliveryTimeout(2*zombieTimeout),
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != to {
				return nil, errElsewhere
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}))
	if err != nil {
		return 0, err
	}
	defer c.CloseAllowingRebalance()
	for p := range partitions {
		ctx, cancel := context.WithTimeout(context.Background(), 3*zombieTimeout)
		made, err := c.ProduceSync(ctx, &kgo.Record{Partition: int32(p), Value: []byte("too late")}).First()
		cancel()
		if err != nil {
			refused++
			continue
		}
		if r.fenced(n, witness) == nil {
			r.ledger.violate(zombieAck, "broker %d, which is fenced, acknowledged offset %d of partition %d", n, made.Offset, p)
		}
	}
	return refused, nil
}
