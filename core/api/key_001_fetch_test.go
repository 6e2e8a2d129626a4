package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// toFetch is a sessionless request for these partitions from offset 0.
func toFetch(partitions ...string) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SessionEpoch, req.MaxBytes = -1, 1<<20
	for _, k := range partitions {
		i := strings.LastIndexByte(k, '-')
		p := kmsg.NewFetchRequestTopicPartition()
		fmt.Sscan(k[i+1:], &p.Partition)
		p.PartitionMaxBytes = 1 << 20
		topic := k[:i]
		if n := len(req.Topics); n > 0 && req.Topics[n-1].Topic == topic {
			req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, p)
			continue
		}
		req.Topics = append(req.Topics, kmsg.FetchRequestTopic{Topic: topic, TopicID: topicID(topic), Partitions: []kmsg.FetchRequestTopicPartition{p}})
	}
	return req
}

// answered lists what is in an answer, in order: topic-partition, error code and
// whether there are records.
func answered(resp *kmsg.FetchResponse) string {
	var out []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			s := fmt.Sprintf("%s-%d", t.Topic, p.Partition)
			if p.ErrorCode != 0 {
				s += fmt.Sprintf("!%d", p.ErrorCode)
			}
			if len(p.RecordBatches) > 0 {
				s += "+"
			}
			out = append(out, s)
		}
	}
	return strings.Join(out, " ")
}

// fill appends a batch to partitions, behind the handler's back.
func (c *cluster) fill(t testing.TB, partitions ...model.Partition) {
	for _, p := range partitions {
		data := records(t, batch.Options{}, "v")
		info, err := recordbatch.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		c.Append(t.Context(), model.Append{Partition: p, Batch: info, Data: data}, func(a model.Appended) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		})
	}
}

func TestFetchErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		version int16
		of      string
		change  func(*kmsg.FetchRequest, *cluster)
		want    string
	}{
		{name: "good", version: 4, of: "orders-0", want: "orders-0+"},
		{name: "good by ID", version: 13, of: "orders-0", want: "-0+"},
		{name: "unknown topic", version: 12, of: "nope-0", want: "nope-0!3"},
		{name: "unknown topic ID", version: 13, of: "nope-0", want: "-0!100"},
		{name: "unknown partition", version: 12, of: "orders-9", want: "orders-9!3"},
		{name: "not leader", version: 12, of: "orders-1", want: "orders-1!6"},
		{name: "denied", version: 12, of: "orders-0", want: "orders-0!29",
			change: func(_ *kmsg.FetchRequest, c *cluster) { c.denyTopic("orders", security.OpRead) }},
		{name: "denied and unknown", version: 12, of: "nope-0", want: "nope-0!29",
			change: func(_ *kmsg.FetchRequest, c *cluster) { c.denyTopic("nope", security.OpRead) }},
		{name: "out of range", version: 12, of: "orders-0", want: "orders-0!1",
			change: func(r *kmsg.FetchRequest, _ *cluster) { r.Topics[0].Partitions[0].FetchOffset = 5 }},
		{name: "fenced", version: 12, of: "orders-0", want: "orders-0!74",
			change: func(r *kmsg.FetchRequest, _ *cluster) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 3 }},
		{name: "follower", version: 4, of: "orders-0", want: "orders-0!42",
			change: func(r *kmsg.FetchRequest, _ *cluster) { r.ReplicaID = 2 }},
		{name: "debug consumer", version: 4, of: "orders-0", want: "orders-0+",
			change: func(r *kmsg.FetchRequest, _ *cluster) { r.ReplicaID = -2 }},
		{name: "storage", version: 12, of: "orders-0", want: "orders-0!56",
			change: func(_ *kmsg.FetchRequest, c *cluster) {
				c.fetchErr[model.Partition{Topic: topicID("orders")}] = model.ErrStorage
			}},
		{name: "one error, one good", version: 12, of: "orders-0 nope-0", want: "orders-0+ nope-0!3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newCluster(t)
			id := f.topic("orders", self, 2)
			f.fill(t, model.Partition{Topic: id})
			req := toFetch(strings.Fields(c.of)...)
			req.MinBytes, req.MaxWaitMillis = 1<<20, 60_000 // an error does not wait
			if strings.Contains(c.want, "+") {
				req.MinBytes = 1
			}
			if c.change != nil {
				c.change(req, f)
			}
			resp := ask[*kmsg.FetchResponse](t, newHandler(f), c.version, req)
			if got := answered(resp); got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					if p.RecordBatches == nil {
						t.Errorf("records are null, on which old clients fail")
					}
					if p.ErrorCode != 0 && p.HighWatermark != -1 {
						t.Errorf("high watermark %d beside an error", p.HighWatermark)
					}
				}
			}
		})
	}
}

func TestFetchFollowerIsRefused(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	for _, version := range []int16{7, 14} {
		req := toFetch("orders-0")
		req.ReplicaID = 0
		if resp := ask[*kmsg.FetchResponse](t, newHandler(c), version, req); resp.ErrorCode != 42 || len(resp.Topics) != 0 {
			t.Errorf("version %d: %+v", version, resp)
		}
	}
	req := toFetch("orders-0")
	req.ReplicaState.ID = 2
	if resp := ask[*kmsg.FetchResponse](t, newHandler(c), 15, req); resp.ErrorCode != 42 {
		t.Errorf("version 15: %+v", resp)
	}
}

func TestFetchBounds(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	h := newHandler(c)
	for _, b := range []struct{ max, min, wait int32 }{{1 << 30, 1 << 30, 0}, {-1, -1, -1}, {10, 100, 0}} {
		req := toFetch("orders-0")
		req.MaxBytes, req.MinBytes, req.MaxWaitMillis = b.max, b.min, b.wait
		req.Topics[0].Partitions[0].PartitionMaxBytes = -5
		ask[*kmsg.FetchResponse](t, h, 12, req)
	}
	if n := len(c.fetches); n != 3 {
		t.Fatalf("%d fetches", n)
	}
	for i, want := range []model.Fetch{{MaxBytes: 55 << 20, MinBytes: 55 << 20}, {}, {MaxBytes: 10, MinBytes: 10}} {
		got := c.fetches[i]
		if got.MaxBytes != want.MaxBytes || got.MinBytes != want.MinBytes || got.MaxWait != 0 || got.Partitions[0].MaxBytes != 0 {
			t.Errorf("fetch %d: %+v", i, got)
		}
	}
}

// A fetch that finds nothing waits, and is answered when records arrive.
func TestFetchWaits(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self)
	req := toFetch("orders-0")
	req.Version, req.MinBytes, req.MaxWaitMillis = 12, 1, 60_000
	answer := newHandler(c).Begin(t.Context(), callOf(req))
	got := make(chan string, 1)
	go func() { got <- answered(decoded[*kmsg.FetchResponse](t, req, answer(t.Context()))) }()
	c.fill(t, model.Partition{Topic: id})
	if s := <-got; s != "orders-0+" {
		t.Fatalf("got %q", s)
	}
}

// A topic that is not there does not keep the fetch of another one from waiting: a
// client of both would ask without a pause until it gives the topic up. A client of
// nothing else is kept waiting too, but not for long.
func TestFetchWaitsBesideAnUnknownTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.topic("orders", self)
		h := newHandler(c)
		for of, want := range map[string]time.Duration{"orders-0 gone-0": 500 * time.Millisecond, "gone-0": goneWait, "orders-0 orders-9": 500 * time.Millisecond} {
			req := toFetch(strings.Fields(of)...)
			req.MinBytes, req.MaxWaitMillis = 1, 500
			began := time.Now()
			resp := ask[*kmsg.FetchResponse](t, h, 12, req)
			if took := time.Since(began); took != want || !strings.Contains(answered(resp), "!3") {
				t.Errorf("%s: %s in %s, want an error in %s", of, answered(resp), took, want)
			}
		}
	})
}

func TestFetchIsolation(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self)
	c.fill(t, model.Partition{Topic: id})
	for level, wantNull := range []bool{true, false} {
		req := toFetch("orders-0")
		req.IsolationLevel = int8(level)
		p := ask[*kmsg.FetchResponse](t, newHandler(c), 12, req).Topics[0].Partitions[0]
		if (p.AbortedTransactions == nil) != wantNull || p.LastStableOffset != 1 || len(p.RecordBatches) == 0 || p.PreferredReadReplica != -1 {
			t.Errorf("level %d: %+v", level, p)
		}
	}
}

// zstd reaches no client that cannot read it. (KIP-110)
func TestFetchZstd(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self)
	c.logs[model.Partition{Topic: id}] = &memLog{leo: 2, batches: [][]byte{
		records(t, batch.Options{}, "v"), records(t, batch.Options{Codec: batch.Zstd, BaseOffset: 1}, "v")}}
	for _, c.file = range []*os.File{nil, recordsFile(t)} { // of what lies in a file nobody sees the codec
		for version, want := range map[int16]string{9: "orders-0!76", 10: "orders-0+"} {
			if got := answered(ask[*kmsg.FetchResponse](t, newHandler(c), version, toFetch("orders-0"))); got != want {
				t.Errorf("version %d, in a file: %v: %q", version, c.file != nil, got)
			}
		}
	}
}

// recordsFile is a file for records.
func recordsFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "records"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Records that lie in a file are answered as others are, and counted as they are.
func TestFetchSections(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self, self)
	c.fill(t, model.Partition{Topic: id})
	inMemory := ask[*kmsg.FetchResponse](t, newHandler(c), 12, toFetch("orders-0", "orders-1"))
	c.file = recordsFile(t)
	events := &events{}
	inFile := ask[*kmsg.FetchResponse](t, newHandler(c, func(_ *Config, d *Deps) { d.Events = events }), 12, toFetch("orders-0", "orders-1"))
	if got, want := inFile.AppendTo(nil), inMemory.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("got\n%x, in memory\n%x", got, want)
	}
	if want := len(inFile.Topics[0].Partitions[0].RecordBatches); want == 0 || events.fetched != want {
		t.Errorf("%d bytes are counted, of %d", events.fetched, want)
	}
	if size, _ := c.file.Seek(0, io.SeekCurrent); size != int64(events.fetched) {
		t.Errorf("%d bytes are in the file", size)
	}
}

func TestFetchDiverging(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self)
	c.fill(t, model.Partition{Topic: id})
	req := toFetch("orders-0")
	req.Topics[0].Partitions[0].LastFetchedEpoch = 9
	p := ask[*kmsg.FetchResponse](t, newHandler(c), 12, req).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != 7 || p.DivergingEpoch.EndOffset != 1 || len(p.RecordBatches) != 0 {
		t.Fatalf("got %+v", p)
	}
}

func TestFetchNamesTheLeader(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, 2)
	for _, version := range []int16{15, 16} {
		resp := ask[*kmsg.FetchResponse](t, newHandler(c), version, toFetch("orders-1"))
		p := resp.Topics[0].Partitions[0]
		if told := p.CurrentLeader.LeaderID == 2 && p.CurrentLeader.LeaderEpoch == 7 && len(resp.Brokers) == 1 && resp.Brokers[0].Host == "b.example"; told != (version >= 16) {
			t.Errorf("version %d: %+v, %+v", version, p.CurrentLeader, resp.Brokers)
		}
	}
}

// FR-80: a topic that was deleted and made again is another one to who knows its
// ID, and never silence.
func TestFetchRecreatedTopic(t *testing.T) {
	c := newCluster(t)
	old := c.topic("orders", self)
	c.fill(t, model.Partition{Topic: old})
	h := newHandler(c)
	req := toFetch("orders-0")
	req.SessionID, req.SessionEpoch = 0, 0
	first := ask[*kmsg.FetchResponse](t, h, 13, req)
	if answered(first) != "-0+" || first.SessionID == 0 {
		t.Fatalf("before: %+v", first)
	}
	c.apply(&image.TopicRemovalRecord{ID: old, Name: "orders"}, &image.TopicRecord{ID: model.TopicID{9}, Name: "orders"})
	again := kmsg.NewPtrFetchRequest()
	again.SessionID, again.SessionEpoch, again.MaxWaitMillis = first.SessionID, 1, 60_000
	for epoch := range int32(2) {
		again.SessionEpoch = epoch + 1
		if got := answered(ask[*kmsg.FetchResponse](t, h, 13, again)); got != "-0!100" {
			t.Errorf("afterwards: %q", got)
		}
	}
	req.SessionEpoch = -1
	if got := answered(ask[*kmsg.FetchResponse](t, h, 12, req)); got != "orders-0!3" {
		t.Errorf("by name: %q", got)
	}
}

// always answers every fetch with the same.
type always struct {
	model.Partitions
	answer *model.FetchAnswer
}

func (a always) Fetch(context.Context, model.Fetch) *model.FetchAnswer { return a.answer }

// A fetch of a session takes no memory, whether or not there is news of many partitions,
// and whether topics have names or IDs.
func TestFetchAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the detector makes pools forget")
	}
	const partitions = 100
	data := [][]byte{records(t, batch.Options{}, "v"), records(t, batch.Options{}, strings.Repeat("v", 20_000))}
	for _, version := range []int16{7, 12, 13, 17} {
		for _, news := range []int{0, 1, partitions} {
			answer := &model.FetchAnswer{Partitions: make([]model.Fetched, partitions)}
			next := followed(t, version, partitions, always{answer: answer}, "orders-3", "orders-5")
			for i := range news {
				answer.Partitions[i].Data = data
			}
			for range 3 {
				next() // pools are filled, and slices have grown
			}
			if n := testing.AllocsPerRun(200, next); n > 0.5 {
				t.Errorf("version %d, news of %d of %d partitions: %.1f allocations", version, news, partitions, n)
			}
		}
	}
}
