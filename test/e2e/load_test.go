package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ledger is what a producer was told: which record was acknowledged, at which
// offset.
type ledger struct {
	mu      sync.Mutex
	sent    int
	acked   map[int]int64
	errs    []error
	retried int
	grew    chan struct{} // closed and replaced at each acknowledgement
}

func newLedger() *ledger { return &ledger{acked: map[int]int64{}, grew: make(chan struct{})} }

func (l *ledger) send() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	return l.sent - 1
}

func (l *ledger) ack(n int, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, twice := l.acked[n]; twice {
		l.errs = append(l.errs, fmt.Errorf("record %d acknowledged at %d and at %d", n, old, offset))
	}
	l.acked[n] = offset
	close(l.grew)
	l.grew = make(chan struct{})
}

func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// inFlight is how many records were sent and not yet acknowledged.
func (l *ledger) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent - len(l.acked)
}

// waitAcked waits until n more records have been acknowledged.
func (l *ledger) waitAcked(ctx context.Context, n int) error {
	l.mu.Lock()
	want := len(l.acked) + n
	l.mu.Unlock()
	for {
		l.mu.Lock()
		have, grew := len(l.acked), l.grew
		l.mu.Unlock()
		if have >= want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d records acknowledged: %w", have, want, ctx.Err())
		case <-grew:
		}
	}
}

// loader sends numbered records at a rate until stop is called, which returns
// when each was acknowledged or failed.
type loader func(t *testing.T, addr, topic string, l *ledger) (stop func())

// recordsPerSecond is the load's rate: enough that records are always in
// flight.
const recordsPerSecond = 3000

func value(n int) string { return fmt.Sprintf("record %d", n) }

// franzLoad sends by franz-go: idempotent, acks=all, data loss fatal.
func franzLoad(t *testing.T, addr, topic string, l *ledger) func() {
	var hooks retryCounter
	c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.StopProducerOnDataLossDetected(), kgo.ProducerLinger(2*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.WithHooks(&hooks))
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
	return func() {
		cancel()
		<-done
		flush, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := c.Flush(flush); err != nil {
			l.fail(fmt.Errorf("franz-go: flush: %w", err))
		}
		l.retried = hooks.retried()
	}
}

// retryCounter counts produce requests that got no answer.
type retryCounter struct {
	mu            sync.Mutex
	written, read int
}

func (h *retryCounter) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if key != 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written++
	if e.Err() == nil {
		h.read++
	}
}

func (h *retryCounter) retried() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.written - h.read
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
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := lines(bufio.NewReader(stdout), func(line string) {
			var n int
			var offset int64
			switch {
			case scan(line, "P %d", &n):
				l.send()
			case scan(line, "A %d %d", &n, &offset):
				l.ack(n, offset)
			case scan(line, "R %d", &n):
				l.retried = n
			default:
				l.fail(errors.New("librdkafka: " + line))
			}
		})
		if err != io.EOF {
			l.fail(err)
		}
	}()
	return func() {
		stdin.Close()
		<-done
		if err := cmd.Wait(); err != nil {
			l.fail(fmt.Errorf("librdkafka producer: %w\n%s", err, errs.String()))
		}
	}
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}
