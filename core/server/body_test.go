package server

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/core/wire"
)

// partsBody is a response of texts and records in turn.
type partsBody struct {
	parts    [][]byte // every second one is spliced
	released *atomic.Int32
}

func (b *partsBody) Size() (size wire.Size) {
	for i, p := range b.parts {
		if i%2 == 0 {
			size.Appended += len(p)
		} else {
			size.Spliced += len(p)
		}
	}
	return size
}

func (b *partsBody) Encode(dst []byte, splice wire.Splice) []byte {
	for i, p := range b.parts {
		if i%2 == 0 {
			dst = append(dst, p...)
		} else {
			splice.Records(len(dst), p)
		}
	}
	return dst
}

func (b *partsBody) Release() { b.released.Add(1) }

// A response that encodes itself comes as a whole, in the order of the requests, and
// is let go of once.
func TestBody(t *testing.T) {
	var released atomic.Int32
	large := bytes.Repeat([]byte("records "), 64<<10)
	for _, parts := range [][][]byte{
		{},
		{[]byte("small")},
		{[]byte("a"), large},
		{nil, large, nil, large, []byte("end")},
		{[]byte("x"), nil, []byte("y"), large[:9], []byte("z")},
	} {
		s := start(t, testConfig(), 256<<20, handlerFunc(func(ctx context.Context, c wire.Call) wire.Answer {
			if c.CorrelationID%2 == 0 {
				return echo(ctx, c)
			}
			c.Turn.Later()
			go c.Turn.Ready()
			return func(context.Context) wire.Reply {
				return wire.Reply{Body: &partsBody{parts, &released}, Spent: true}
			}
		}))
		released.Store(0)
		c := dial(t, s.addr)
		const n = 10
		for i := range int32(n) {
			c.send(metadata(i))
		}
		want := append([]byte{0}, bytes.Join(parts, nil)...)
		for i := range int32(n) {
			id, body := c.receive()
			if id != i || (i%2 == 1 && !bytes.Equal(body, want)) {
				t.Fatalf("reply %d in the place of %d, with %d bytes, want %d", id, i, len(body), len(want))
			}
		}
		s.stop()
		if got := released.Load(); got != n/2 {
			t.Errorf("%d bodies were let go of, want %d", got, n/2)
		}
	}
}
