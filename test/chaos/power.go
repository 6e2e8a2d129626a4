package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/faultfs"
)

const (
	flushAlways     = "always"
	flushReplicated = "replicated"
)

// power is three brokers that lose power, all at once, again and again.
type power struct {
	*run
	dir   string
	flush string
	load  *load // nil: none is on
	boots int

	dropped   faultfs.Lost
	lossy     int // cuts that took what was acknowledged
	forgotten int // records that were acknowledged, and named as lost
}

// powerCuts cuts the power of all brokers under load as often as is asked for. With the policy
// `always` nothing that was acknowledged may be lost. With `replicated` it may, where the
// brokers say of which partition, and from which offset on; below it everything must be there.
// With both, the replicas are the same bytes once all are in sync.
func powerCuts(ctx context.Context, opts options, all *table) error {
	if opts.flush != flushAlways && opts.flush != flushReplicated {
		return fmt.Errorf("there is no flush policy %q to cut power with", opts.flush)
	}
	dir := filepath.Join(opts.dir, "power-"+opts.flush)
	l := newLedger(partitions, true, false)
	r, err := opts.newRun(dir, math.MaxUint64, l)
	if err != nil {
		return err
	}
	defer r.stop()
	if err := r.addDisks(dir); err != nil {
		return err
	}
	p := &power{dir: dir, flush: opts.flush, run: r}
	if err := p.found(); err != nil {
		return err
	}
	for n := range opts.powerCuts {
		l.watchPauses()
		what, err := p.cut()
		if err != nil {
			l.violate(notServed, "power cut %d: %s: %v", n+1, what, err)
		}
		all.add("power-cut", l.pause())
		say(opts.out, "%s %4d power-cut (%s)  %s\n", time.Now().Format("15:04:05.000"), n+1, p.flush, what)
		if err != nil || ctx.Err() != nil {
			break // what does not serve tells nothing more
		}
	}
	p.endLoad((*load).finish)
	r.readBackFromEach()
	say(opts.out, "power cuts with %s: the disks dropped %d names, and of %d files what was not synced, %d bytes of it appended; %d cuts took %d acknowledged records, and named them\n",
		p.flush, p.dropped.Names, p.dropped.Files, p.dropped.Bytes, p.lossy, p.forgotten)
	if p.dropped.Files == 0 && opts.powerCuts > 0 {
		l.violate(notServed, "no power cut took anything: nothing was tried")
	}
	all.restarted = append(all.restarted, p.restarted...)
	all.count(l)
	return nil
}

// found starts the brokers and the load.
func (p *power) found() error {
	p.seedAll()
	for _, b := range p.nodes {
		b.settings = append(b.settings, "flush="+p.flush)
	}
	if err := p.boot(); err != nil {
		return err
	}
	if err := p.startAll(); err != nil {
		return err
	}
	for _, step := range []func() error{
		p.awaitVoters,
		func() error { return p.createTopic(brokers) },
		p.awaitInSync,
	} {
		if err := step(); err != nil {
			return fmt.Errorf("start three brokers: %w; see%s", err, p.outputs())
		}
	}
	var err error
	p.load, err = startLoad(p.addrs(), p.ledger)
	return err
}

// endLoad ends the load, if one is on.
func (p *power) endLoad(end func(*load)) {
	if p.load != nil {
		end(p.load)
	}
	p.load = nil
}

// boot is another start of the machine.
func (p *power) boot() error {
	p.boots++
	return p.disks.ns.Boot(p.dir, fmt.Sprintf("00000000-0000-4000-8000-%012d", p.boots))
}

// cut takes the power, gives it back, and waits until all serve and are in sync; then it
// compares the replicas, and all that is read with what was told. The load is on again.
func (p *power) cut() (what string, err error) {
	wait(p.between(p.longest/10, p.longest))
	outputs := p.outputSizes()
	if err := p.takePower(); err != nil {
		return "", err
	}
	if p.flush == flushReplicated {
		// Its producers have been told of what may be gone, and would say so.
		p.endLoad((*load).abandon)
	}
	if err := p.boot(); err != nil {
		return "", err
	}
	began, mark := time.Now(), p.ledger.mark()
	if err := p.startAll(); err != nil {
		return "", err
	}
	if p.flush == flushReplicated {
		if what, err = p.named(outputs); err != nil {
			return what, err
		}
		p.ledger.renew()
		if p.load, err = startLoad(p.addrs(), p.ledger); err != nil {
			return what, err
		}
		mark = p.ledger.mark()
	}
	err = eventually(servedMax, func() error { return p.ledger.passed(mark) })
	took := time.Since(began)
	p.restarted = append(p.restarted, took)
	if err == nil && took > restartedMax {
		p.ledger.violate(notServed, "all lost power, and served %s after their start", took.Round(time.Millisecond))
	}
	what += fmt.Sprintf("served %s after the start", took.Round(time.Millisecond))
	if err != nil {
		return what, err
	}
	return what, p.judge()
}

// takePower ends all at once.
func (p *power) takePower() error {
	order := p.rng.Perm(brokers)
	for _, i := range order {
		p.nodes[i].dismiss()
	}
	for _, i := range order {
		p.nodes[i].disk.Off()
	}
	for _, i := range order {
		b := p.nodes[i]
		if err := b.end(syscall.SIGKILL); err != nil {
			return err
		}
		if err := b.disk.unmount(); err != nil {
			return err
		}
		lost, err := b.disk.LosePower(p.rng)
		if err != nil {
			return err
		}
		p.dropped.Names += lost.Names
		p.dropped.Files += lost.Files
		p.dropped.Bytes += lost.Bytes
		if err := b.disk.mount(); err != nil {
			return err
		}
	}
	return nil
}

func (p *power) outputSizes() map[int]int64 {
	sizes := map[int]int64{}
	for _, b := range p.nodes {
		if info, err := os.Stat(b.output); err == nil {
			sizes[b.n] = info.Size()
		}
	}
	return sizes
}

// lossNamed is what a controller says of a partition whose last records may be gone.
var lossNamed = regexp.MustCompile(`msg="all replicas that were in sync may have lost records[^"]*log end (\d+)\)" .*topic=` + topicName + ` partitions=\[(\d+)\]`)

// named waits until the brokers have said of each partition, all of whose replicas may have lost
// something, from which offset on, and takes that from the ledger. What is missing of the rest
// is for the ledger to find.
func (p *power) named(outputs map[int]int64) (what string, err error) {
	var from map[int]int64
	err = eventually(servedMax, func() error {
		from = map[int]int64{}
		for _, b := range p.nodes {
			out, err := os.ReadFile(b.output)
			if err != nil {
				return err
			}
			for _, m := range lossNamed.FindAllSubmatch(out[min(int64(len(out)), outputs[b.n]):], -1) {
				end, _ := strconv.ParseInt(string(m[1]), 10, 64)
				partition, _ := strconv.Atoi(string(m[2]))
				if at, ok := from[partition]; !ok || end < at {
					from[partition] = end
				}
			}
		}
		if len(from) < partitions {
			return fmt.Errorf("of %d partitions, the brokers have named what is lost of %d", partitions, len(from))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	lost := 0
	for partition := range partitions {
		n := p.ledger.forget(partition, from[partition])
		lost += n
		what += fmt.Sprintf("partition %d from %d on (%d acknowledged), ", partition, from[partition], n)
	}
	if p.forgotten += lost; lost > 0 {
		p.lossy++
	}
	return what, nil
}

// judge ends the load, compares, and begins it again.
func (p *power) judge() error {
	p.endLoad((*load).finish)
	if err := p.awaitInSync(); err != nil {
		return err
	}
	if err := eventually(inSyncMax, p.compare); err != nil {
		p.ledger.violate(changed, "replicas differ: %v", err)
	}
	if err := readBack(p.addrs(), p.ledger, "read after a power cut", inSyncMax); err != nil {
		return err
	}
	var err error
	p.load, err = startLoad(p.addrs(), p.ledger)
	return err
}

// compare holds the replicas of each partition against each other, byte by byte.
func (p *power) compare() error {
	for partition := range partitions {
		var logs [][][]byte
		for _, b := range p.nodes {
			batches, err := b.disk.batches(partition)
			if err != nil {
				return err
			}
			logs = append(logs, batches)
		}
		if err := alike(logs); err != nil {
			return fmt.Errorf("partition %d: %w", partition, err)
		}
	}
	return nil
}

// alike says where the batches of the brokers' logs are not those of the first one's, or that
// there are none.
func alike(logs [][][]byte) error {
	first := logs[0]
	for i, batches := range logs {
		if len(batches) != len(first) {
			return fmt.Errorf("broker %d has %d batches, and broker 1 %d", i+1, len(batches), len(first))
		}
		for n, batch := range batches {
			if !bytes.Equal(batch, first[n]) {
				return fmt.Errorf("the batch of broker %d at offset %d is not that of broker 1", i+1, binary.BigEndian.Uint64(batch))
			}
		}
	}
	if len(first) == 0 {
		return errors.New("there are no batches")
	}
	return nil
}

// batchHead is what precedes the bytes that a batch counts in its length.
const batchHead = 12

// batches are those of the topic's partition, in the order of offsets. (A segment has batches
// and then, as long as it is written to, zeros.)
func (d *disk) batches(partition int) ([][]byte, error) {
	dir, err := d.log(partition)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, name := range d.Names(dir) {
		if filepath.Ext(name) != ".log" {
			continue
		}
		b, err := d.Read(dir + "/" + name)
		if err != nil {
			return nil, err
		}
		for len(b) > batchHead {
			n := batchHead + int64(binary.BigEndian.Uint32(b[8:]))
			if n == batchHead {
				break
			}
			if n > int64(len(b)) {
				return nil, fmt.Errorf("%s ends within a batch", name)
			}
			all = append(all, b[:n])
			b = b[n:]
		}
	}
	return all, nil
}

// abandon ends all clients at once: what is not answered stays unknown.
func (ld *load) abandon() {
	ld.abandoned.Store(true)
	ld.stop()
	ld.sending.Wait()
	for _, c := range ld.producers {
		c.CloseAllowingRebalance()
	}
	ld.stopRead()
	ld.reading.Wait()
}

// forget drops what was acknowledged and read of a partition from an offset on, and tells how
// much of it was acknowledged.
func (l *ledger) forget(partition int, from int64) (acknowledged int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.partitions[partition]
	for _, r := range t.acked[min(from, int64(len(t.acked))):] {
		if r != (record{}) {
			acknowledged++
		}
	}
	t.acked = t.acked[:min(from, int64(len(t.acked)))]
	t.read = t.read[:min(from, int64(len(t.read)))]
	for r, at := range t.at {
		if at >= from {
			delete(t.at, r)
		}
	}
	return acknowledged
}

// renew has other producers send from now on, as many and as idempotent as before. It is for
// when nobody sends.
func (l *ledger) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := l.idempotent[l.retired:]
	l.retired = len(l.idempotent)
	l.idempotent = append(l.idempotent[:l.retired:l.retired], fresh...)
	for _, t := range l.partitions {
		for producer := range l.retired {
			t.newest[producer] = math.MaxInt
		}
		n := make([]int, len(fresh))
		t.sent, t.told, t.newest = append(t.sent, n...), append(t.told, n...), append(t.newest, n...)
	}
}
