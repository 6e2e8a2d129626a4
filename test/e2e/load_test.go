package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ledger is what a producer was told: which record was acknowledged, at which
// offset. Its methods may be called concurrently.
type ledger struct {
	mu   sync.Mutex
	told told
	grew chan struct{} // closed and replaced at each acknowledgement
}

// told is a ledger's content.
type told struct {
	sent    int
	acked   map[int]int64 // offsets by the record's number
	errs    []error
	retried int          // requests without an answer, or, of librdkafka, retries and connections made
	caught  map[int]bool // records that were in flight at a kill
}

func newLedger() *ledger {
	return &ledger{told: told{acked: map[int]int64{}, caught: map[int]bool{}}, grew: make(chan struct{})}
}

// send is the number of the next record.
func (l *ledger) send() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told.sent++
	return l.told.sent - 1
}

func (l *ledger) ack(n int, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, twice := l.told.acked[n]; twice {
		l.told.errs = append(l.told.errs, fmt.Errorf("record %d acknowledged at %d and at %d", n, old, offset))
	}
	l.told.acked[n] = offset
	close(l.grew)
	l.grew = make(chan struct{})
}

func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told.errs = append(l.told.errs, err)
}

func (l *ledger) retried(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told.retried = n
}

// read is a copy of what was told so far.
func (l *ledger) read() told {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.told
	now.acked, now.caught, now.errs = maps.Clone(now.acked), maps.Clone(now.caught), append([]error(nil), now.errs...)
	return now
}

// inFlight is how many records were sent and not yet acknowledged.
func (l *ledger) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told.sent - len(l.told.acked)
}

// killing returns how many records are in flight, and remembers which.
func (l *ledger) killing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	inFlight := l.told.sent - len(l.told.acked)
	for n, left := l.told.sent-1, inFlight; left > 0; n-- {
		if _, acked := l.told.acked[n]; !acked {
			l.told.caught[n] = true
			left--
		}
	}
	return inFlight
}

// recovered is how many records that were in flight at a kill were acknowledged
// in the end.
func (t *told) recovered() int {
	n := 0
	for r := range t.caught {
		if _, acked := t.acked[r]; acked {
			n++
		}
	}
	return n
}

// waitAcked waits until n more records have been acknowledged.
func (l *ledger) waitAcked(ctx context.Context, n int) error {
	l.mu.Lock()
	want := len(l.told.acked) + n
	l.mu.Unlock()
	for {
		l.mu.Lock()
		have, grew := len(l.told.acked), l.grew
		l.mu.Unlock()
		if have >= want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d records acknowledged: %w\n%w", have, want, ctx.Err(), errors.Join(l.read().errs...))
		case <-grew:
		}
	}
}

// loader sends numbered records to partition 0 of a topic, idempotent and with
// acks=all, until stop is called, which returns when each was acknowledged or
// failed. Nothing of it outlives the test.
type loader func(t *testing.T, addr, topic string, l *ledger) (stop func())

// loaders are the clients that load can come from.
func loaders() map[string]loader {
	return map[string]loader{"franz-go": franzLoad, "librdkafka": librdkafkaLoad}
}

// recordsPerSecond is the load's rate: enough that records are always in
// flight.
const recordsPerSecond = 3000

// value is the value of record n.
func value(n int) string { return fmt.Sprintf("record %d", n) }

// franzLoad sends by franz-go, to which any sign of data loss is fatal.
func franzLoad(t *testing.T, addr, topic string, l *ledger) func() {
	var unanswered unansweredProduces
	c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.StopProducerOnDataLossDetected(), kgo.ProducerLinger(2*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.WithHooks(&unanswered))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for range recordsPerSecond / 100 {
				n := l.send()
				c.Produce(context.Background(), &kgo.Record{Value: []byte(value(n))}, func(r *kgo.Record, err error) {
					if err != nil {
						l.fail(fmt.Errorf("record %d: %w", n, err))
						return
					}
					l.ack(n, r.Offset)
				})
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() {
		cancel()
		<-done
		if err := c.Flush(testContext(t, time.Minute)); err != nil {
			l.fail(fmt.Errorf("franz-go: flush: %w", err))
		}
		l.retried(unanswered.count())
	}
}

// unansweredProduces counts produce requests that got no answer.
type unansweredProduces struct {
	mu sync.Mutex
	n  int
}

// OnBrokerE2E is franz-go's hook after each request.
func (u *unansweredProduces) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if key != 0 || e.Err() == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

func (u *unansweredProduces) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// librdkafkaLoad sends by librdkafka, in a process of its own.
func librdkafkaLoad(t *testing.T, addr, topic string, l *ledger) func() {
	cmd := exec.Command(tool(t, "python"), "librdkafka_load.py", addr, topic, fmt.Sprint(recordsPerSecond))
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatalf("start the librdkafka producer: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			l.note(lines.Text())
		}
		if err := cmd.Wait(); err != nil {
			l.fail(fmt.Errorf("librdkafka producer: %w\n%s", err, errs.String()))
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return func() {
		stdin.Close()
		<-ended
	}
}

// note reads a line of librdkafka_load.py.
func (l *ledger) note(line string) {
	var n int
	var offset int64
	switch {
	case scan(line, "P %d", &n):
		l.send()
	case scan(line, "A %d %d", &n, &offset):
		l.ack(n, offset)
	case scan(line, "R %d", &n):
		l.retried(n)
	default:
		l.fail(errors.New("librdkafka: " + line))
	}
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}
