package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestChangesUnderLeases reads a topic from its start, again and again, by readers
// that take their time, while it is trimmed by DeleteRecords, by retention, whose
// files are used again, and deleted and made again under the same name. What they
// get is what was produced at that offset, of the life of the topic that there is;
// what they are told beside is the protocol's own errors.
func TestChangesUnderLeases(t *testing.T) {
	for _, carrier := range []string{carrierAuto, carrierSocket, carrierGRPC} {
		if carrier == carrierAuto || full() {
			t.Run(carrier, func(t *testing.T) { changesUnderLeases(t, carrier) })
		}
	}
}

// changesMade is how often a topic is changed.
func changesMade() int {
	if full() || os.Getenv("BROKERD_E2E_KILLS") != "" {
		return 5 * lentKills()
	}
	return 24
}

const (
	changedPartitions = 2
	// deleteEvery is after how many changes the topic is deleted.
	deleteEvery = 8
	// retainedBytes of each partition, in segments of a megabyte.
	retainedBytes = "8388608"
	segmentBytes  = "1048576"
)

// changed is a topic that is changed under its readers.
type changed struct {
	t     *testing.T
	b     *broker
	admin *kadm.Client
	topic string
	life  atomic.Int32 // that the topic has come to

	read, told atomic.Int64 // records, and errors of the protocol
	mu         sync.Mutex
	errs       []error
}

func changesUnderLeases(t *testing.T, carrier string) {
	b := startWatched(t, []string{lentMemory},
		append(carrying(carrier), "--flush", "interval", "--set", "log.retention.check.interval.ms=100ms")...)
	c := &changed{t: t, b: b, admin: newAdmin(t, b.addr()), topic: "changed"}
	ctx := testContext(t, time.Duration(changesMade())*10*time.Second+time.Minute)
	p, endLife := c.begin(ctx)
	reading, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() { c.readAgain(reading) })
	}
	t.Cleanup(func() { stop(); readers.Wait() })

	seen := &segmentsSeen{dir: b.dir}
	t.Cleanup(seen.close)
	held, reused, n := 0, 0, 0
	for ; n < changesMade() || reused == 0 && n < 4*changesMade(); n++ { // until some was used again
		pause(ctx, rand.N(200*time.Millisecond))
		if err := p.waitAcked(ctx, 1000); err != nil { // more than a megabyte
			t.Fatalf("change %d: %v\n%s", n, err, b.tail())
		}
		reused += seen.look()
		if _, leases := b.lent(); leases > 0 {
			held++
		}
		switch {
		case n%deleteEvery == deleteEvery-1:
			endLife()
			deleteTopic(t, b.addr(), c.topic)
			pause(ctx, rand.N(100*time.Millisecond)) // readers meet a topic that is not there
			p, endLife = c.begin(ctx)
		case n%3 != 0:
			c.deleteRecords(ctx, p)
		}
		if errs := c.failed(); len(errs) > 0 {
			t.Fatalf("change %d: %v\n%s", n, errs, b.tail())
		}
	}
	endLife()
	stop()
	readers.Wait()
	c.verify(ctx, p)
	t.Logf("carrier=%s changes=%d (%d of them with leases out) lives=%d segments used again=%d read=%d told=%d",
		carrier, n, held, c.life.Load(), reused, c.read.Load(), c.told.Load())
	if lends := carrier == carrierAuto; lends != (held > 0) {
		t.Errorf("%d changes met leases, over %s", held, carrier)
	}
	if reused == 0 {
		t.Error("no segment was used again; none is kept for that where less than an eighth of the disk is free")
	}
}

// begin makes the topic, in another life, and writes to it until end is called, which
// returns when all was acknowledged.
func (c *changed) begin(ctx context.Context) (p *prover, end func()) {
	c.t.Helper()
	settings := map[string]string{"retention.ms": "-1", "retention.bytes": retainedBytes, "segment.bytes": segmentBytes}
	configs := map[string]*string{}
	for name, value := range settings {
		configs[name] = &value
	}
	life := c.life.Load() + 1
	if err := eventually(ctx, func() error {
		_, err := c.admin.CreateTopic(ctx, changedPartitions, -1, configs, c.topic)
		return err
	}); err != nil {
		c.t.Fatalf("make the topic for the %dth time: %v", life, err)
	}
	c.life.Store(life)
	p = newProver(c.t, c.b.addr(), c.topic, changedPartitions, life)
	writing, stop := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() { p.keepOn(writing, 25, 10*time.Millisecond) })
	c.t.Cleanup(func() { stop(); writer.Wait() })
	return p, func() {
		c.t.Helper()
		stop()
		writer.Wait()
		if err := p.flush(ctx); err != nil {
			c.t.Fatalf("the producer of life %d was told: %v\n%s", life, err, c.b.tail())
		}
	}
}

// deleteRecords trims each partition somewhere.
func (c *changed) deleteRecords(ctx context.Context, p *prover) {
	c.t.Helper()
	starts, err := c.admin.ListStartOffsets(ctx, c.topic)
	if err != nil {
		c.t.Fatalf("list where the topic starts: %v", err)
	}
	to := kadm.Offsets{}
	for i := range p.acked {
		start, _ := starts.Lookup(c.topic, int32(i))
		room := p.acked[i].Load() - start.Offset
		to.Add(kadm.Offset{Topic: c.topic, Partition: int32(i), At: start.Offset + rand.Int64N(max(room, 0)+1)})
	}
	if _, err := c.admin.DeleteRecords(ctx, to); err != nil {
		c.t.Fatalf("delete records: %v\n%s", err, c.b.tail())
	}
}

// readAgain reads from the start, as far as it comes in a few polls, again and again.
func (c *changed) readAgain(ctx context.Context) {
	for ctx.Err() == nil {
		life := c.life.Load()
		r, err := reading(c.b.addr(), c.topic, changedPartitions, kgo.NewOffset().AtStart(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			c.fail(err)
			return
		}
		r.oldest = life
		for range 2 + rand.IntN(20) {
			within, cancel := context.WithTimeout(ctx, time.Second)
			n, err := r.poll(within, true)
			cancel()
			c.read.Add(int64(n))
			if err != nil && mayBeTold(err) {
				c.told.Add(1)
				break
			}
			if err != nil {
				c.fail(fmt.Errorf("a reader: %w", err))
				break
			}
			pause(ctx, rand.N(20*time.Millisecond))
		}
		r.client.Close()
	}
}

func (c *changed) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

func (c *changed) failed() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]error(nil), c.errs...)
}

// verify reads what is left of the last life to its end.
func (c *changed) verify(ctx context.Context, p *prover) {
	c.t.Helper()
	for _, err := range c.failed() {
		c.t.Error(err)
	}
	r, err := reading(c.b.addr(), c.topic, changedPartitions, kgo.NewOffset().AtStart())
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.client.Close()
	r.oldest = c.life.Load()
	for i := range p.sent {
		for r.next[int32(i)] < p.sent[i].Load() {
			if _, err := r.poll(ctx, false); err != nil || ctx.Err() != nil {
				c.t.Fatalf("read the last life of the topic: %v\n%s", errors.Join(err, ctx.Err()), c.b.tail())
			}
		}
	}
}

// segmentsSeen finds files of logs that come to have another name. It holds those
// that it has seen, so that nobody else's file can be the same.
type segmentsSeen struct {
	dir   string
	files []*os.File
	infos []os.FileInfo
	names []string
}

// segmentsSeenMax is how many files are held.
const segmentsSeenMax = 100

// look returns how many files have another name than they had, and holds others.
func (s *segmentsSeen) look() (reused int) {
	paths, err := filepath.Glob(s.dir + "/main/*/*.log")
	if err != nil {
		return 0 // the pattern is right
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			continue // it is gone
		}
		info, err := f.Stat()
		known := -1
		for i := range s.infos {
			if err == nil && os.SameFile(s.infos[i], info) {
				known = i
			}
		}
		switch {
		case err == nil && known < 0 && len(s.files) < segmentsSeenMax:
			s.files, s.infos, s.names = append(s.files, f), append(s.infos, info), append(s.names, path)
			continue
		case known >= 0 && s.names[known] != path:
			s.names[known] = path
			reused++
		}
		f.Close()
	}
	return reused
}

func (s *segmentsSeen) close() {
	for _, f := range s.files {
		f.Close()
	}
}
