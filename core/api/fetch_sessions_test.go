package api

import (
	"errors"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// follow is a request that goes on with a session and names nothing new.
func follow(id, epoch int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SessionID, req.SessionEpoch, req.MaxBytes = id, epoch, 1<<20
	return req
}

func open(t *testing.T, h *Handler, version int16, partitions ...string) int32 {
	t.Helper()
	req := toFetch(partitions...)
	req.SessionEpoch = 0
	resp := ask[*kmsg.FetchResponse](t, h, version, req)
	if resp.SessionID == 0 || resp.ErrorCode != 0 {
		t.Fatalf("no session: %+v", resp)
	}
	return resp.SessionID
}

// A session's answers hold what changed, and every error every time; wherever the records
// lie.
func TestSessionStory(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { tellSessionStory(t, nil) })
	t.Run("in a file", func(t *testing.T) { tellSessionStory(t, recordsFile(t)) })
}

func tellSessionStory(t *testing.T, file *os.File) {
	c := newCluster(t)
	c.file = file
	id := c.topic("orders", self, self, self)
	h := newHandler(c)
	p := func(i int32) model.Partition { return model.Partition{Topic: id, Index: i} }
	session := open(t, h, 12, "orders-0", "orders-1", "orders-2", "nope-0")
	epoch := int32(0)
	next := func(change func(*kmsg.FetchRequest)) string {
		t.Helper()
		epoch++
		req := follow(session, epoch)
		if change != nil {
			change(req)
		}
		resp := ask[*kmsg.FetchResponse](t, h, 12, req)
		if resp.ErrorCode != 0 || resp.SessionID != session {
			t.Fatalf("epoch %d: %+v", epoch, resp)
		}
		return answered(resp)
	}
	steps := []struct {
		name   string
		before func()
		change func(*kmsg.FetchRequest)
		want   string
	}{
		{name: "nothing new but the error", want: "nope-0!3"},
		{name: "records in one", before: func() { c.fill(t, p(0)) }, want: "orders-0+ nope-0!3"},
		{name: "served ones come last", before: func() { c.fill(t, p(1)) }, want: "orders-1+ nope-0!3 orders-0+"},
		{name: "forget and move on", change: func(r *kmsg.FetchRequest) {
			r.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "nope", Partitions: []int32{0}}}
			moved := toFetch("orders-0", "orders-1").Topics
			moved[0].Partitions[0].FetchOffset, moved[0].Partitions[1].FetchOffset = 1, 1
			r.Topics = moved
		}, want: ""},
		{name: "an error begins", before: func() { c.fetchErr[p(2)] = model.ErrStorage }, want: "orders-2!56"},
		{name: "the error stays", want: "orders-2!56"},
		{name: "the error ends, which is news", before: func() { clear(c.fetchErr) }, want: "orders-2"},
		{name: "quiet again", want: ""},
		{name: "a new partition is told of", change: func(r *kmsg.FetchRequest) { r.Topics = toFetch("nope-1").Topics }, want: "nope-1!3"},
		{name: "a new log start is news", before: func() { c.logs[p(1)].start = 1 }, want: "orders-1 nope-1!3"},
	}
	for _, s := range steps {
		if s.before != nil {
			s.before()
		}
		if got := next(s.change); got != s.want {
			t.Fatalf("%s: got %q, want %q", s.name, got, s.want)
		}
	}
}

func TestSessionErrors(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	h := newHandler(c)
	byName := open(t, h, 12, "orders-0")
	byID := open(t, h, 13, "orders-0")
	for _, s := range []struct {
		name    string
		version int16
		id      int32
		epoch   int32
		want    int16
	}{
		{"unknown", 12, byName + 1, 1, 70},
		{"none", 12, 0, 1, 70},
		{"wrong epoch", 12, byName, 2, 71},
		{"IDs for names", 13, byName, 1, 106},
		{"names for IDs", 12, byID, 1, 106},
		{"right", 12, byName, 1, 0},
		{"repeated", 12, byName, 1, 71},
		{"right again", 12, byName, 2, 0},
		{"closed", 12, byName, -1, 0},
		{"gone", 12, byName, 3, 70},
		{"the other is still there", 13, byID, 1, 0},
		{"begun anew", 13, byID, 0, 0},
		{"the old one is gone", 13, byID, 2, 70},
	} {
		resp := ask[*kmsg.FetchResponse](t, h, s.version, follow(s.id, s.epoch))
		if resp.ErrorCode != s.want {
			t.Errorf("%s: code %d, want %d", s.name, resp.ErrorCode, s.want)
		}
		if s.want != 0 && (resp.SessionID != 0 || len(resp.Topics) != 0) {
			t.Errorf("%s: %+v beside an error", s.name, resp)
		}
	}
}

func TestSessionEpochWraps(t *testing.T) {
	if got := sessionEpochAfter(math.MaxInt32); got != 1 {
		t.Errorf("after the greatest epoch comes %d", got)
	}
}

func TestSessionSlots(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, self)
	e := &events{}
	var now atomic.Int64
	h := newHandler(c, func(cfg *Config, d *Deps) {
		cfg.FetchSessionsMax = 2
		d.Events = e
		d.Now = func() time.Time { return time.UnixMilli(now.Load()) }
	})
	big := open(t, h, 12, "orders-0", "orders-1")
	small := open(t, h, 12, "orders-0")
	sessionless := func(why string) {
		t.Helper()
		req := toFetch("orders-0", "orders-1")
		req.SessionEpoch = 0
		if resp := ask[*kmsg.FetchResponse](t, h, 12, req); resp.SessionID != 0 || resp.ErrorCode != 0 || answered(resp) != "orders-0 orders-1" {
			t.Fatalf("%s: %+v", why, resp)
		}
	}
	sessionless("a full cache of young sessions")
	now.Add((3 * time.Minute).Milliseconds())
	for _, s := range []int32{big, small} {
		if resp := ask[*kmsg.FetchResponse](t, h, 12, follow(s, 1)); resp.ErrorCode != 0 {
			t.Fatalf("session %d: %+v", s, resp)
		}
	}
	third := open(t, h, 12, "orders-0", "orders-1") // takes the small one's slot
	if resp := ask[*kmsg.FetchResponse](t, h, 12, follow(small, 2)); resp.ErrorCode != 70 {
		t.Fatalf("the small session: %+v", resp)
	}
	sessionless("no smaller session, none idle")
	now.Add((3 * time.Minute).Milliseconds())
	if resp := ask[*kmsg.FetchResponse](t, h, 12, follow(third, 1)); resp.ErrorCode != 0 {
		t.Fatalf("the third session: %+v", resp)
	}
	open(t, h, 12, "orders-0") // takes the idle one's slot, though it is bigger
	if resp := ask[*kmsg.FetchResponse](t, h, 12, follow(big, 2)); resp.ErrorCode != 70 {
		t.Fatalf("the idle session: %+v", resp)
	}
	if e.sessions != 2 || e.evicted != 2 {
		t.Errorf("%d open, %d evicted", e.sessions, e.evicted)
	}
}

// wants are partitions of one topic.
func wants(first, n int) []fetchWant {
	out := make([]fetchWant, n)
	for i := range out {
		out[i].key = fetchKey{name: "t", index: int32(first + i)}
	}
	return out
}

// Sessions stop growing at a bound, and what ends makes room.
func TestSessionPartitionsBound(t *testing.T) {
	sessions := newFetchSessions(10, testTime, &events{})
	const half = sessionPartitionsMax / 2
	img := &image.Image{}
	a, b := sessions.add(img, false, wants(0, half)), sessions.add(img, false, wants(0, half))
	if a == nil || b == nil || sessions.add(img, false, wants(0, 1)) != nil {
		t.Fatal("the bound is not where it should be")
	}
	more := &fetching{img: img, named: wants(half, 1), req: wire.Fetch{SessionID: a.id, SessionEpoch: 1}}
	if err := sessions.follow(more); !errors.Is(err, model.ErrFetchSessionNotFound) {
		t.Fatalf("growth beyond the bound: %v", err)
	}
	more = &fetching{img: img, named: wants(half, 1), req: wire.Fetch{SessionID: b.id, SessionEpoch: 1}}
	if err := sessions.follow(more); err != nil {
		t.Fatalf("growth after another ended: %v", err)
	}
	if got := sessions.held.Load(); got != half+1 {
		t.Errorf("%d partitions are held", got)
	}
}

// Whatever a client adds, forgets and is told, a session has each of its partitions once,
// with what is wanted of it, in the order in which they were served; and answers to what
// was forgotten meanwhile change nothing.
func TestSessionProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sessions := newFetchSessions(1, testTime, &events{})
		img := &image.Image{}
		key := rapid.Custom(func(t *rapid.T) fetchKey { return fetchKey{name: "t", index: rapid.Int32Range(0, 5).Draw(t, "index")} })
		s := sessions.add(img, false, wants(0, 1))
		order, offsets := []int32{0}, map[int32]int64{}
		var parts, late []fetchPart
		for epoch := int32(1); epoch < 20; epoch++ {
			var add []fetchWant
			forget := rapid.SliceOfN(key, 0, 3).Draw(t, "forget")
			for _, k := range forget {
				order = slices.DeleteFunc(order, func(i int32) bool { return i == k.index })
				delete(offsets, k.index)
			}
			for _, k := range rapid.SliceOfN(key, 0, 3).Draw(t, "add") {
				add = append(add, fetchWant{key: k, offset: int64(epoch)})
				if !slices.Contains(order, k.index) {
					order = append(order, k.index)
				}
				offsets[k.index] = int64(epoch)
			}
			late = append(late[:0], parts...)
			var err error
			if parts, err = s.begin(img, epoch, testTime(), add, forget, parts[:0]); err != nil {
				t.Fatal(err)
			}
			var got []int32
			for _, p := range parts {
				if got = append(got, p.key.index); p.offset != offsets[p.key.index] {
					t.Fatalf("partition %d is fetched at %d, want %d", p.key.index, p.offset, offsets[p.key.index])
				}
			}
			if n := len(order); !slices.Equal(got, order) || s.size() != n || sessions.held.Load() != int64(n) {
				t.Fatalf("partitions %v, want %v; %d and %d are counted", got, order, s.size(), sessions.held.Load())
			}
			// An answer of the request before comes late, to what may have been forgotten
			// or added again.
			served := slices.Concat(late, parts)
			for _, at := range rapid.SliceOfN(rapid.IntRange(0, max(0, len(served)-1)), 0, min(3, len(served))).Draw(t, "served") {
				p := served[at]
				s.tellOne(p.place, p.turn, &model.Fetched{Data: [][]byte{[]byte("x")}})
				if i := slices.Index(order, p.key.index); i >= 0 && s.partitions[p.place].turn == p.turn {
					order = append(slices.Delete(order, i, i+1), p.key.index)
				}
			}
		}
		if sessions.remove(s.id); sessions.held.Load() != 0 {
			t.Fatalf("%d partitions are held after the end", sessions.held.Load())
		}
	})
}
