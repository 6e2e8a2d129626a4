package api

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// nothing answers appends and fetches at once, so that only the edge is measured.
type nothing struct{ model.Partitions }

func (nothing) Append(_ context.Context, _ model.Append, done func(model.Appended)) {
	done(model.Appended{})
}

func (nothing) Fetch(_ context.Context, f model.Fetch) *model.FetchAnswer {
	return &model.FetchAnswer{Partitions: nothingFetched[:len(f.Partitions)]}
}

var nothingFetched [1000]model.Fetched

func benchHandler(b *testing.B, partitions int) *Handler {
	c := newCluster(b)
	c.topic("orders", slices.Repeat([]model.NodeID{self}, partitions)...)
	return newHandler(c, func(_ *Config, d *Deps) { d.Partitions, d.Authorizer = nothing{}, security.AllowAll{} })
}

func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{100, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			h := benchHandler(b, 1)
			data := records(b, batch.Options{}, strings.Repeat("x", size))
			req := toProduce(map[string][]byte{"orders-0": data})
			req.Version = 9
			call := callOf(req)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			call.Turn = noTurn{}
			dst := make([]byte, 0, 256)
			for b.Loop() {
				reply := h.Begin(b.Context(), call)(b.Context())
				if reply.Body == nil {
					b.Fatal(reply)
				}
				dst = reply.Body.Encode(dst[:0], nil)
				reply.Body.Release()
			}
		})
	}
}

// noTurn is for answers that are there at once.
type noTurn struct{}

func (noTurn) Later() {}
func (noTurn) Ready() {}

// followed is a session over so many partitions, and what answers its next request,
// which names those that `moves` says.
func followed(t testing.TB, version int16, partitions int, of model.Partitions, moves ...string) func() {
	c := newCluster(t)
	c.topic("orders", slices.Repeat([]model.NodeID{self}, partitions)...)
	h := newHandler(c, func(_ *Config, d *Deps) { d.Partitions, d.Authorizer = of, security.AllowAll{} })
	var names []string
	for i := range partitions {
		names = append(names, fmt.Sprintf("orders-%d", i))
	}
	req := toFetch(names...)
	req.SessionEpoch = 0
	session := ask[*kmsg.FetchResponse](t, h, version, req).SessionID
	next := follow(session, 0)
	next.Version = version
	next.Topics = toFetch(moves...).Topics
	call := callOf(next)
	dst := make([]byte, 0, 64<<10)
	epoch := uint32(0)
	const epochAt = 4 + 4 + 4 + 1 + 4 // behind wait, sizes, isolation and session
	at := epochAt
	if version < 15 {
		at += 4
	}
	ctx := t.Context()
	return func() {
		epoch++
		binary.BigEndian.PutUint32(call.Body[at:], epoch)
		reply := h.Begin(ctx, call)(ctx)
		dst = reply.Body.Encode(dst[:0], spliceNothing{})
		if code := binary.BigEndian.Uint16(dst[4:]); code != 0 {
			t.Fatalf("error code %d", code)
		}
		reply.Body.Release()
	}
}

type spliceNothing struct{}

func (spliceNothing) Records(int, []byte)         {}
func (spliceNothing) Section(int, *model.Section) {}

// A session over many partitions, of which none has news.
func BenchmarkFetchSession(b *testing.B) {
	for _, partitions := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			next := followed(b, 12, partitions, nothing{})
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
		})
	}
}

// noGroups answers at once.
type noGroups struct{ Groups }

func (noGroups) Commit(_ context.Context, q model.CommitOffsets, done func(model.CommittedOffsets)) {
	done(model.CommittedOffsets{Offsets: make([]error, len(q.Offsets))})
}

func (noGroups) FetchOffsets(_ context.Context, q model.FetchOffsets, done func(model.FetchedOffsets)) {
	done(model.FetchedOffsets{Offsets: make([]model.GroupOffset, len(q.Partitions))})
}

func (noGroups) Heartbeat(_ context.Context, _ model.GroupHeartbeat, done func(error)) { done(nil) }

func benchGroups(b *testing.B, version int16, req kmsg.Request) {
	c := newCluster(b)
	c.topic("orders", slices.Repeat([]model.NodeID{self}, 100)...)
	h := newHandler(c, func(_ *Config, d *Deps) { d.Groups, d.Authorizer = noGroups{}, security.AllowAll{} })
	req.SetVersion(version)
	call := callOf(req)
	call.Turn = noTurn{}
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		reply := h.Begin(b.Context(), call)(b.Context())
		switch {
		case reply.Body != nil:
			dst = reply.Body.Encode(dst[:0], nil)
			reply.Body.Release()
		case failure(reply.Response) != nil:
			b.Fatal(reply)
		}
	}
}

func BenchmarkOffsetCommit(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchGroups(b, 8, toCommit("crew", map[string][]int32{"orders": firstPartitions(n)}))
		})
	}
}

func BenchmarkOffsetFetch(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			req := toFetchOffsets("crew", "orders")
			req.Groups[0].Topics[0].Partitions = firstPartitions(n)
			benchGroups(b, 9, req)
		})
	}
}

func BenchmarkHeartbeat(b *testing.B) { benchGroups(b, 4, groupRequests()[4]) }

func firstPartitions(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}
