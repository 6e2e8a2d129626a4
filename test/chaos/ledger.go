package main

import (
	"fmt"
	"sync"
	"time"
)

// violationsShown bounds how many violations of each kind are told in words.
const violationsShown = 5

// record is a record of the load: the n-th, from 1, of a producer's to a partition.
type record struct {
	producer, partition, n int
}

func (r record) String() string { return fmt.Sprintf("%d %d %d", r.producer, r.partition, r.n) }

func parseRecord(value []byte) (r record, err error) {
	_, err = fmt.Sscanf(string(value), "%d %d %d", &r.producer, &r.partition, &r.n)
	return r, err
}

// violation is a kind of broken promise.
type violation string

const (
	lost      violation = "lost"      // acknowledged, and not there
	changed   violation = "changed"   // an offset has had two records
	doubled   violation = "duplicate" // an idempotent producer's record is at two offsets
	hole      violation = "hole"      // an offset was left out
	disorder  violation = "disorder"  // an idempotent producer's records are not in the order of sending
	clientErr violation = "client error"
	notServed violation = "not served again"
	exited    violation = "exit by itself"
	// secondCluster is a broker of another cluster than the first one's.
	secondCluster violation = "second cluster"
	// clockHurt is what a wall clock did that was set.
	clockHurt violation = "hurt by a clock"
	// zombieAck is of a broker that is fenced.
	zombieAck violation = "zombie acknowledgement"
	// falseAlarm is a fencing, or a change of the replicas in sync, that nothing called for.
	falseAlarm violation = "false alarm"
	// disordered is a window of a history that no log could have (history.go), and undecided
	// one of which that is not known in time.
	disordered violation = "not linearizable"
	undecided  violation = "undecided"
)

var violations = []violation{lost, changed, doubled, hole, disorder, clientErr, notServed, exited, secondCluster, clockHurt, zombieAck, falseAlarm, disordered, undecided}

// ledger holds what clients were told and what was read. Its methods may be called
// concurrently.
type ledger struct {
	mu         sync.Mutex
	idempotent []bool   // by producer
	history    *history // or nil
	partitions []*track
	retired    int // so many producers send no more (power.go)
	broken     map[violation]int
	told       []string
}

// track is the ledger of one partition. Zero records are of no producer.
type track struct {
	acked, read []record         // by offset
	at          map[record]int64 // where a record was read first
	sent, told  []int            // by producer: how many were sent, how many acknowledged
	newest      []int            // by producer: the last that was acknowledged
	lastAck     time.Time
	pause       time.Duration // the longest between two acknowledgements, since pauses were asked for
}

func newLedger(partitions int, idempotent ...bool) *ledger {
	l := &ledger{idempotent: idempotent, broken: map[violation]int{}}
	for range partitions {
		n := len(idempotent)
		l.partitions = append(l.partitions, &track{
			at: map[record]int64{}, sent: make([]int, n), told: make([]int, n), newest: make([]int, n), lastAck: time.Now(),
		})
	}
	return l
}

// violate notes a broken promise.
func (l *ledger) violate(v violation, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violateLocked(v, format, args...)
}

func (l *ledger) violateLocked(v violation, format string, args ...any) {
	if l.broken[v]++; l.broken[v] <= violationsShown {
		l.told = append(l.told, fmt.Sprintf("%s %s: %s", time.Now().Format("15:04:05.000"), v, fmt.Sprintf(format, args...)))
	}
}

// send is the next record of a producer to a partition.
func (l *ledger) send(producer, partition int) record {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.partitions[partition]
	t.sent[producer]++
	r := record{producer, partition, t.sent[producer]}
	l.history.sent(r)
	return r
}

// ack notes that a record was acknowledged at an offset.
func (l *ledger) ack(r record, offset int64) {
	l.history.acked(r, offset)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.partitions[r.partition]
	t.pause = max(t.pause, now.Sub(t.lastAck))
	t.lastAck = now
	t.told[r.producer]++
	t.newest[r.producer] = max(t.newest[r.producer], r.n)
	var was record
	if t.acked, was = set(t.acked, offset, r); was != (record{}) && was != r {
		l.violateLocked(changed, "partition %d, offset %d: %v was acknowledged there, then %v", r.partition, offset, was, r)
	}
	if offset < int64(len(t.read)) && t.read[offset] != (record{}) && t.read[offset] != r {
		l.violateLocked(changed, "partition %d, offset %d: %v was read there, then %v acknowledged", r.partition, offset, t.read[offset], r)
	}
}

// set puts a record at an offset, and returns the one that was there.
func set(all []record, offset int64, r record) ([]record, record) {
	for int64(len(all)) <= offset {
		all = append(all, record{})
	}
	was := all[offset]
	all[offset] = r
	return all, was
}

// reader is one reading of all partitions from their start.
type reader struct {
	ledger *ledger
	next   []int64 // by partition
	order  [][]int // by partition and producer: the record that was read last
}

func (l *ledger) newReader() *reader {
	r := &reader{ledger: l, next: make([]int64, len(l.partitions))}
	for range l.partitions {
		r.order = append(r.order, make([]int, len(l.idempotent)))
	}
	return r
}

// took notes what a reader was given next.
func (rd *reader) took(partition int, offset int64, r record) {
	l := rd.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.partitions[partition]
	if offset != rd.next[partition] {
		l.violateLocked(hole, "partition %d: offset %d was read where %d is next", partition, offset, rd.next[partition])
	}
	rd.next[partition] = offset + 1
	var was record
	if t.read, was = set(t.read, offset, r); was != (record{}) && was != r {
		l.violateLocked(changed, "partition %d, offset %d: %v was read there, then %v", partition, offset, was, r)
	}
	if offset < int64(len(t.acked)) && t.acked[offset] != (record{}) && t.acked[offset] != r {
		l.violateLocked(changed, "partition %d, offset %d: %v was acknowledged there, and %v is read", partition, offset, t.acked[offset], r)
	}
	first, seen := t.at[r]
	if !seen {
		t.at[r] = offset
	}
	if !l.idempotent[r.producer] {
		return
	}
	if seen && first != offset {
		l.violateLocked(doubled, "partition %d: %v is at %d and at %d", partition, r, first, offset)
	}
	if last := rd.order[partition][r.producer]; r.n != last+1 && (!seen || first == offset) {
		l.violateLocked(disorder, "partition %d, offset %d: %v comes after the producer's record %d", partition, offset, r, last)
	}
	rd.order[partition][r.producer] = r.n
}

// finish holds what a reader has read to the end against what was acknowledged.
func (rd *reader) finish(how string) {
	l := rd.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, t := range l.partitions {
		for offset, r := range t.acked {
			if r == (record{}) {
				continue
			}
			if int64(offset) >= rd.next[p] || t.read[offset] != r {
				l.violateLocked(lost, "%s, partition %d: %v was acknowledged at %d, and is not there; the end is %d", how, p, r, offset, rd.next[p])
			}
		}
	}
}

// ends is one more than the last offset that was acknowledged or read, by partition.
func (l *ledger) ends() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []int64
	for _, t := range l.partitions {
		out = append(out, int64(max(len(t.acked), len(t.read))))
	}
	return out
}

// counts is how many records were sent, and how many of those acknowledged.
func (l *ledger) counts() (sent, acknowledged int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.partitions {
		for p := range t.sent {
			sent += t.sent[p]
			acknowledged += t.told[p]
		}
	}
	return sent, acknowledged
}

// unanswered is how many records of a producer wait for an answer.
func (l *ledger) unanswered(producer int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, t := range l.partitions {
		n += t.sent[producer] - t.told[producer]
	}
	return n
}

// watchPauses begins to look for the longest pause.
func (l *ledger) watchPauses() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.partitions {
		t.pause, t.lastAck = 0, now
	}
}

// pause is the longest time that any partition acknowledged nothing, since watchPauses.
func (l *ledger) pause() time.Duration {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	for _, t := range l.partitions {
		longest = max(longest, t.pause, now.Sub(t.lastAck))
	}
	return longest
}

// mark is how much was sent of each producer to each partition.
func (l *ledger) mark() [][]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out [][]int
	for _, t := range l.partitions {
		out = append(out, append([]int(nil), t.sent...))
	}
	return out
}

// passed is nil when each producer has an acknowledgement, from each partition, of a record
// sent after the mark.
func (l *ledger) passed(mark [][]int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, t := range l.partitions {
		for producer := range t.sent {
			if t.newest[producer] <= mark[p][producer] {
				return fmt.Errorf("partition %d acknowledges nothing of producer %d: %d sent, %d acknowledged, the last is %d",
					p, producer, t.sent[producer], t.told[producer], t.newest[producer])
			}
		}
	}
	return nil
}

// count is how often a promise of a kind was broken.
func (l *ledger) count(v violation) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken[v]
}

// sum is how much was broken, and in words what.
func (l *ledger) sum() (map[violation]int, []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[violation]int{}
	for v, n := range l.broken {
		out[v] = n
	}
	return out, append([]string(nil), l.told...)
}
