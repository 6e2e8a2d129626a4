package clients

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// streamsTimeout bounds one step of a Streams application, its start or a rebalance
	// of two instances among them.
	streamsTimeout = 90 * time.Second
	// sendEvery is how often lines are sent while something happens.
	sendEvery = 20 * time.Millisecond
	// streamsPartitions is how many partitions the topics of an application have.
	streamsPartitions = 3
)

// TestStreams puts Kafka Streams through its cases: what it does with records, the
// internal topics that it makes for itself, and what becomes of its counts when
// instances come and go and the broker is killed.
func TestStreams(t *testing.T) {
	t.Parallel()
	const name = "kafka-streams"
	suite.client(t, name, func(t *testing.T) {
		version, err := javaVersion(t)
		for _, k := range []struct {
			name string
			run  func(r *run)
		}{
			{"split", streamsSplit},
			{"count, two instances, reset", streamsCount},
			{"count, broker killed", streamsBrokerKilled},
		} {
			suite.runCase(t, name, version, k.name, func(r *run) {
				if err != nil {
					r.Fatalf("cannot be had: %v", err)
				}
				k.run(r)
			})
		}
	})
}

// words is the vocabulary of the lines that applications read.
var words = []string{"broker", "topic", "partition", "leader", "offset", "record", "group", "member"}

// application is a Streams application with its topics, and what is expected of it.
type application struct {
	r           *run
	addr        string
	in, out, id string
	writer      *kgo.Client
	rng         *rand.Rand
	sent        map[string]int      // how often each word was sent
	lines       map[string][]string // the words sent with each key, in order
}

func (r *run) application(addr, prefix string) *application {
	r.Helper()
	a := &application{
		r: r, addr: addr, in: r.topic(addr, prefix+"-in", streamsPartitions), out: r.topic(addr, prefix+"-out", streamsPartitions),
		rng: rand.New(rand.NewPCG(1, 2)), sent: make(map[string]int), lines: make(map[string][]string),
	}
	a.id = a.in + "-app"
	a.writer = r.client(addr, kgo.DefaultProduceTopic(a.in), kgo.ProducerLinger(10*time.Millisecond))
	return a
}

// send writes n lines of a few words each to all partitions.
func (a *application) send(n int) {
	a.r.Helper()
	if err := a.trySend(n); err != nil {
		a.r.Fatal(err)
	}
}

func (a *application) trySend(n int) error {
	recs := make([]*kgo.Record, n)
	for i := range recs {
		line := make([]string, 1+a.rng.IntN(5))
		for j := range line {
			line[j] = words[a.rng.IntN(len(words))]
			a.sent[line[j]]++
		}
		key := strconv.Itoa(i)
		a.lines[key] = append(a.lines[key], line...)
		recs[i] = &kgo.Record{Key: []byte(key), Value: []byte(strings.Join(line, " "))}
	}
	ctx, cancel := context.WithTimeout(a.r.Context(), streamsTimeout)
	defer cancel()
	if err := a.writer.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// keepSending sends a few lines, again and again. The function it returns sends some
// more and ends it; until then nobody else may send.
func (a *application) keepSending() func() error {
	end := a.r.background(func(ctx context.Context) error {
		tick := time.NewTicker(sendEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := a.trySend(20); err != nil {
				return err
			}
			<-tick.C
		}
		return nil
	})
	return func() error { return errors.Join(end(), a.trySend(20)) }
}

// instance is a process of an application.
type instance struct {
	*driver
	mu       sync.Mutex
	states   []string
	assigned []int32 // the partitions of its last assignment
	restored int     // records that its stores were filled from
}

// start starts an instance with a state directory of its own.
func (a *application) start(command string) *instance {
	a.r.Helper()
	p, err := javaProgram("Streams")()
	if err != nil {
		a.r.Fatal(err)
	}
	i := &instance{}
	i.driver, err = startDriver(p, i.on, command, "bootstrap="+a.addr, "app="+a.id, "in="+a.in, "out="+a.out, "dir="+a.r.TempDir())
	if err != nil {
		a.r.Fatal(err)
	}
	a.r.Cleanup(func() {
		i.kill()
		if a.r.Failed() {
			i.mu.Lock()
			defer i.mu.Unlock()
			a.r.Logf("instance: states %v, partitions %v\n%s", i.states, i.assigned, i.stderr.String())
		}
	})
	return i
}

func (i *instance) on(e event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch e.Event {
	case "assigned":
		i.assigned = e.Partitions
	case "restored":
		i.restored += e.Count
	default:
		i.states = append(i.states, e.Event)
	}
}

// has is what the instance has now, and how many records it has restored.
func (i *instance) has() ([]int32, int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.assigned), i.restored
}

// share waits until the instances have all partitions, each some, and none two.
func (a *application) share(instances ...*instance) {
	a.r.Helper()
	err := eventually(a.r.within(streamsTimeout), func() error {
		var all []int32
		for n, i := range instances {
			mine, _ := i.has()
			if len(mine) == 0 {
				return fmt.Errorf("instance %d has nothing", n)
			}
			all = append(all, mine...)
		}
		if slices.Sort(all); !slices.Equal(all, []int32{0, 1, 2}) {
			return fmt.Errorf("they have %v", all)
		}
		return nil
	})
	if err != nil {
		a.r.Fatal(err)
	}
}

// results reads what an application has written.
type results struct {
	client *kgo.Client
	values map[string][]string // of each key, in order
}

// read begins to read the application's output.
func (a *application) read() *results {
	a.r.Helper()
	o := &results{values: make(map[string][]string)}
	o.client = a.r.client(a.addr, kgo.ConsumeTopics(a.out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	return o
}

// until reads on until the check passes.
func (o *results) until(ctx context.Context, check func(values map[string][]string) error) error {
	for {
		err := check(o.values)
		if err == nil {
			return nil
		}
		fetches := o.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("given up (%w): %w", ctx.Err(), err)
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			o.values[string(rec.Key)] = append(o.values[string(rec.Key)], string(rec.Value))
		})
	}
}

// streamsSplit: each line becomes its words, in order, once.
func streamsSplit(r *run) {
	a := r.application(r.addr, "split")
	a.send(300)
	i := a.start("split")
	a.share(i)
	a.send(300)
	out := a.read()
	total := sum(a.sent)
	err := out.until(r.within(streamsTimeout), func(values map[string][]string) error {
		n := 0
		for _, words := range values {
			n += len(words)
		}
		if n < total {
			return fmt.Errorf("%d of %d words", n, total)
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	for key, want := range a.lines {
		if got := out.values[key]; !slices.Equal(got, want) {
			r.Errorf("key %s has the words %q, want %q", key, got, want)
		}
	}
	if err := i.leave(r.Context()); err != nil {
		r.Error(err)
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// last is the word's count at the end.
func last(values map[string][]string, word string) int {
	vs := values[word]
	if len(vs) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(vs[len(vs)-1])
	return n
}

// reached is an error until the counts together have come to n.
func reached(n int) func(values map[string][]string) error {
	return func(values map[string][]string) error {
		all := 0
		for word := range values {
			all += last(values, word)
		}
		if all < n {
			return fmt.Errorf("counted %d words of at least %d", all, n)
		}
		return nil
	}
}

// counted is an error until the last count of each word is at least what was sent.
func (a *application) counted(values map[string][]string) error {
	for word, want := range a.sent {
		if got := last(values, word); got < want {
			return fmt.Errorf("%s was counted %d times and sent %d times", word, got, want)
		}
	}
	return nil
}

// expect reads until all is counted.
func (a *application) expect(out *results) {
	a.r.Helper()
	if err := out.until(a.r.within(streamsTimeout), a.counted); err != nil {
		a.r.Fatal(err)
	}
}

// expectExactly reads until all is counted and nothing more can come of it, and fails
// the case if any word was counted twice.
func (a *application) expectExactly(out *results) {
	a.r.Helper()
	a.expect(out)
	a.purged() // so all is committed that there was to count
	ends, err := a.r.admin(a.addr).ListEndOffsets(a.r.within(askTimeout), a.out)
	if err != nil || ends.Error() != nil {
		a.r.Fatalf("end of %s: %v %v", a.out, err, ends.Error())
	}
	written := 0
	ends.Each(func(o kadm.ListedOffset) { written += int(o.Offset) })
	err = out.until(a.r.within(streamsTimeout), func(values map[string][]string) error {
		read := 0
		for _, vs := range values {
			read += len(vs)
		}
		if read < written {
			return fmt.Errorf("read %d counts of %d", read, written)
		}
		return nil
	})
	if err != nil {
		a.r.Fatal(err)
	}
	for word, want := range a.sent {
		if got := last(out.values, word); got != want {
			a.r.Errorf("%s was counted %d times and sent %d times", word, got, want)
		}
	}
}

// internalTopics: Streams has made its topics by its own admin client, with the settings
// that it wants.
func (a *application) internalTopics() {
	a.r.Helper()
	adm := a.r.admin(a.addr)
	for name, want := range map[string]map[string]string{
		a.id + "-counts-changelog":  {"cleanup.policy": "compact"},
		a.id + "-words-repartition": {"cleanup.policy": "delete", "retention.ms": "-1"},
	} {
		details, err := adm.ListTopics(a.r.within(askTimeout), name)
		if err != nil || len(details[name].Partitions) != streamsPartitions {
			a.r.Fatalf("topic %s: %d partitions, %v", name, len(details[name].Partitions), err)
		}
		configs, err := adm.DescribeTopicConfigs(a.r.within(askTimeout), name)
		if err != nil {
			a.r.Fatal(err)
		}
		for _, c := range configs[0].Configs {
			if value, named := want[c.Key]; named && c.MaybeValue() != value {
				a.r.Errorf("topic %s: %s is %s, want %s", name, c.Key, c.MaybeValue(), value)
			}
		}
	}
}

// purged waits until Streams has deleted what it has counted from its repartition topic.
func (a *application) purged() {
	a.r.Helper()
	adm, name := a.r.admin(a.addr), a.id+"-words-repartition"
	err := eventually(a.r.within(streamsTimeout), func() error {
		starts, err1 := adm.ListStartOffsets(a.r.within(askTimeout), name)
		ends, err2 := adm.ListEndOffsets(a.r.within(askTimeout), name)
		if err := errors.Join(err1, err2, starts.Error(), ends.Error()); err != nil {
			return err
		}
		for _, p := range ends.Offsets()[name] {
			if s, _ := starts.Lookup(name, p.Partition); s.Offset < p.At {
				return fmt.Errorf("partition %d: from %d to %d", p.Partition, s.Offset, p.At)
			}
		}
		return nil
	})
	if err != nil {
		a.r.Fatal(err)
	}
}

// streamsCount: counts are exact while instances come, and complete after one was
// killed; a second instance begins with what the changelog has; and the application can
// be reset by Kafka's tool.
func streamsCount(r *run) {
	a := r.application(r.addr, "count")
	a.send(400)
	first, out := a.start("count"), a.read()
	a.share(first)
	a.expectExactly(out)
	a.internalTopics()

	second := a.start("count")
	a.share(first, second)
	if mine, restored := second.has(); restored == 0 {
		r.Errorf("the second instance has %v and restored nothing", mine)
	}
	a.send(400)
	a.expectExactly(out)

	first.kill()
	a.send(400)
	a.share(second)
	a.expect(out)
	if err := second.leave(r.Context()); err != nil {
		r.Error(err)
	}
	a.reset()
}

// reset forgets the application: its internal topics go, and it is at the beginning of
// its input.
func (a *application) reset() {
	a.r.Helper()
	box, err := openToolbox()
	if err != nil {
		a.r.Fatal(err)
	}
	defer func() {
		if err := box.close(); err != nil {
			a.r.Error(err)
		}
	}()
	r := &toolRun{run: a.r, box: box}
	out := r.ok("StreamsResetter", "--application-id", a.id, "--input-topics", a.in, "--force")
	r.contains(out, a.id+"-counts-changelog")
	r.contains(out, a.id+"-words-repartition")
	r.soon(func() error {
		topics, err := r.admin(a.addr).ListTopics(r.within(askTimeout))
		if err != nil {
			return err
		}
		for name := range topics {
			if strings.HasPrefix(name, a.id) {
				return fmt.Errorf("topic %s is still there", name)
			}
		}
		return nil
	})
	offsets, err := r.admin(a.addr).FetchOffsets(r.within(askTimeout), a.id)
	if err != nil {
		r.Fatal(err)
	}
	for p := range int32(streamsPartitions) {
		if o, ok := offsets.Lookup(a.in, p); !ok || o.At != 0 {
			r.Errorf("partition %d of its input: committed %d, want 0", p, o.At)
		}
	}
}

// streamsBrokerKilled: an application outlives deaths of brokers while it is at work,
// and has then counted every word at least once.
func streamsBrokerKilled(r *run) {
	c := r.ownCluster()
	a := r.application(c.addr(), "killed")
	a.send(400)
	i, out := a.start("count"), a.read()
	a.share(i)
	a.expectExactly(out)
	before := sum(a.sent)
	end := a.keepSending()
	for i := range 2 {
		before += 100
		// It has counted some of what is sent now.
		if err := out.until(r.within(streamsTimeout), reached(before)); err != nil {
			r.Fatal(err)
		}
		b := c.brokers[i%len(c.brokers)]
		b.Kill()
		if err := b.start(); err != nil {
			r.Fatal(err)
		}
	}
	if err := end(); err != nil {
		r.Fatal(err)
	}
	a.expect(out)
	if err := i.leave(r.Context()); err != nil {
		r.Error(err)
	}
}
