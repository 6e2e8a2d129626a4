package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	soakTopic = "soak"
	// soakRecordBytes and soakBuffered make a load that takes all there is.
	soakRecordBytes = 1 << 10
	soakBuffered    = 20_000
	soakProducers   = 2
	// soakRetention bounds what is kept of it, of each partition.
	soakRetention = "268435456"
	busyLoops     = 2
	// storeTimeout is from when on an append that a store took is a stall of it: what comes of
	// that is listed, and not counted. stallReach is how far from it.
	storeTimeout = time.Second
	stallReach   = 10 * time.Second
	watchEvery   = 10 * time.Millisecond
	scrapeEvery  = 500 * time.Millisecond
	tellEvery    = time.Minute
)

// mishap is what is not to happen to brokers that are well, only busy.
type mishap struct {
	at   time.Time
	what string
}

// soak is an hour, or another time, at full load.
type soak struct {
	*run
	mu       sync.Mutex
	mishaps  []mishap
	stalls   []mishap
	stalled  map[int]float64 // appends over storeTimeout, by broker
	produced atomic.Int64
	consumed atomic.Int64
}

// soaking runs three brokers at full load, with loops beside it that take as much of the
// processors as they get. No broker may be fenced, nor the replicas in sync change.
func soaking(ctx context.Context, opts options, all *table) error {
	dir := filepath.Join(opts.dir, "soak")
	l := newLedger(partitions, true)
	r, err := opts.newRun(dir, 0, l)
	if err != nil {
		return err
	}
	defer r.stop()
	s := &soak{run: r, stalled: map[int]float64{}}
	if err := s.begin(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, opts.soak)
	defer cancel()
	if err := s.fill(ctx); err != nil {
		return err
	}
	all.told = append(all.told, s.judge(l)...)
	all.count(l)
	return nil
}

// fill has the load, the loops and those who watch run until ctx ends.
func (s *soak) fill(ctx context.Context) error {
	made, cancel := context.WithTimeout(ctx, servedMax)
	retention, two := soakRetention, "2"
	_, err := kadm.NewClient(s.asking).CreateTopic(made, partitions, brokers, map[string]*string{"retention.bytes": &retention, "min.insync.replicas": &two}, soakTopic)
	cancel()
	if err != nil {
		return fmt.Errorf("create the topic: %w", err)
	}
	var all sync.WaitGroup
	for range busyLoops {
		loop := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		endWithParent(loop)
		if err := loop.Start(); err != nil {
			return fmt.Errorf("start a busy loop: %w", err)
		}
		all.Go(func() { _ = loop.Wait() }) // it ends with ctx
	}
	for range soakProducers {
		c, err := newClient(s.addrs(), kgo.DefaultProduceTopic(soakTopic), kgo.MaxBufferedRecords(soakBuffered), kgo.ProducerLinger(5*time.Millisecond))
		if err != nil {
			return err
		}
		all.Go(func() { s.produce(ctx, c) })
	}
	c, err := newClient(s.addrs(), kgo.ConsumeTopics(soakTopic))
	if err != nil {
		return err
	}
	all.Go(func() { s.consume(ctx, c) })
	all.Go(func() { s.watch(ctx) })
	all.Go(func() { s.scrape(ctx) })
	all.Go(func() { s.tell(ctx) })
	all.Wait()
	return nil
}

func (s *soak) produce(ctx context.Context, c *kgo.Client) {
	defer c.CloseAllowingRebalance()
	for ctx.Err() == nil {
		c.Produce(ctx, &kgo.Record{Value: make([]byte, soakRecordBytes)}, func(_ *kgo.Record, err error) {
			switch {
			case err == nil:
				s.produced.Add(1)
			case ctx.Err() == nil:
				s.ledger.violate(clientErr, "a record: %v", err)
			}
		})
	}
}

func (s *soak) consume(ctx context.Context, c *kgo.Client) {
	defer c.Close()
	for ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		s.consumed.Add(int64(fetches.NumRecords()))
		fetches.EachError(func(_ string, p int32, err error) {
			var behind *kgo.ErrDataLoss // retention has passed the consumer, which is not to wait for it
			if ctx.Err() == nil && !errors.As(err, &behind) {
				s.ledger.violate(clientErr, "read partition %d: %v", p, err)
			}
		})
	}
}

// note adds a mishap.
func (s *soak) note(to *[]mishap, format string, args ...any) {
	m := mishap{time.Now(), fmt.Sprintf(format, args...)}
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = append(*to, m)
	say(s.out, "%s %s\n", m.at.Format("15:04:05.000"), m.what)
}

// watch asks for the partitions, and notes each change.
func (s *soak) watch(ctx context.Context) {
	var last []string
	admin := kadm.NewClient(s.asking)
	every(ctx, watchEvery, func() {
		one, cancel := context.WithTimeout(ctx, askTimeout)
		m, err := admin.Metadata(one, soakTopic)
		cancel()
		if err != nil || m.Topics[soakTopic].Err != nil {
			return // clients tell of errors that matter
		}
		var now []string
		for _, p := range m.Topics[soakTopic].Partitions.Sorted() {
			slices.Sort(p.ISR)
			now = append(now, fmt.Sprintf("partition %d: leader %d of epoch %d, in sync %v", p.Partition, p.Leader, p.LeaderEpoch, p.ISR))
		}
		for i, is := range now {
			if i < len(last) && is != last[i] {
				s.note(&s.mishaps, "%s; before, %s", is, last[i])
			}
		}
		last = now
	})
}

// scrape asks brokers for the appends that took their stores too long.
func (s *soak) scrape(ctx context.Context) {
	every(ctx, scrapeEvery, func() {
		for _, b := range s.nodes {
			long, err := longAppends(ctx, b.admin)
			if err != nil {
				continue // it did not answer in time, as may be
			}
			if was := s.stalled[b.n]; long > was {
				s.note(&s.stalls, "broker %d's store took %.0f appends longer than %s each", b.n, long-was, storeTimeout)
			}
			s.stalled[b.n] = long
		}
	})
}

// longAppends counts the appends of a broker's stores that took storeTimeout or longer.
func longAppends(ctx context.Context, admin string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var short, total float64
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case `brokerd_replica_store_append_seconds_bucket{le="1"}`:
			_, err = fmt.Sscan(value, &short)
		case `brokerd_replica_store_append_seconds_count`:
			_, err = fmt.Sscan(value, &total)
		}
		if err != nil {
			return 0, err
		}
	}
	return total - short, nil
}

// tell says how far it is.
func (s *soak) tell(ctx context.Context) {
	every(ctx, tellEvery, func() {
		say(s.out, "%s %d records acknowledged, %d read, load %s\n", time.Now().Format("15:04:05.000"), s.produced.Load(), s.consumed.Load(), machineLoad())
	})
}

// fencedWords are what a broker logs when it is fenced.
const fencedWords = "this broker is fenced"

// judge tells of what happened, and counts what no stall of a store explains.
func (s *soak) judge(l *ledger) (told []string) {
	for _, b := range s.nodes {
		output, err := os.ReadFile(b.output)
		if err != nil {
			l.violate(falseAlarm, "broker %d's output cannot be read: %v", b.n, err)
		}
		for line := range strings.Lines(string(output)) {
			if !strings.Contains(line, fencedWords) {
				continue
			}
			at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(strings.Fields(line)[0], "time="))
			if err != nil {
				l.violate(falseAlarm, "broker %d: %s", b.n, line)
				continue
			}
			s.mishaps = append(s.mishaps, mishap{at, fmt.Sprintf("broker %d was fenced", b.n)})
		}
	}
	for _, m := range s.mishaps {
		if i := slices.IndexFunc(s.stalls, func(stall mishap) bool { return m.at.Sub(stall.at).Abs() < stallReach }); i >= 0 {
			told = append(told, fmt.Sprintf("not counted, since %s at %s: %s", s.stalls[i].what, s.stalls[i].at.Format("15:04:05.000"), m.what))
			continue
		}
		l.violate(falseAlarm, "%s at %s", m.what, m.at.Format("15:04:05.000"))
	}
	told = append(told, fmt.Sprintf("soak: %d records of %d bytes acknowledged, %d read, %d stalls of stores over %s, %d fencings and changes of what is in sync or leads, %d of them counted",
		s.produced.Load(), soakRecordBytes, s.consumed.Load(), len(s.stalls), storeTimeout, len(s.mishaps), l.count(falseAlarm)))
	if s.produced.Load() == 0 || s.consumed.Load() == 0 {
		l.violate(notServed, "nothing was acknowledged, or nothing read")
	}
	return told
}
