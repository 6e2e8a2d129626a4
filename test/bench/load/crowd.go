package load

import (
	"context"
	"net"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// Crowd is a load of many connections of which most do nothing: they have asked for the
// versions of the API, as every client does first, and stay. The others send a record
// each so often, evenly spread over that time.
type Crowd struct {
	Addr         string
	Topic        rpc.Topic
	Idle, Active int
	Every        time.Duration
	Batch        []byte // of one record
	For          time.Duration
	Ready        func() error // as in Produce
	// AtEnd is called while all are still connected; or nil.
	AtEnd func() error
}

// dialsAtOnce bounds the connections that are being made.
const dialsAtOnce = 32

// Run connects all and lets them go.
func (l Crowd) Run(ctx context.Context) (Result, error) {
	conns := make([]*rpc.Conn, l.Idle)
	producers := make([]*producer, l.Active)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		for _, p := range producers {
			if p != nil {
				_ = p.c.Close()
			}
		}
	}()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(dialsAtOnce)
	for i := range conns {
		g.Go(func() (err error) {
			conns[i], err = dialIdle(gctx, l.Addr)
			return err
		})
	}
	for i := range producers {
		g.Go(func() (err error) {
			producers[i], err = dialProducer(gctx, l.Addr, produceRequest(l.Topic, int32(i%l.Topic.Partitions), l.Batch))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Result{}, err
	}
	r, err := l.run(ctx, producers)
	if err == nil && l.AtEnd != nil {
		err = l.AtEnd()
	}
	return r, err
}

func (l Crowd) run(ctx context.Context, producers []*producer) (Result, error) {
	return together(ctx, producers, l.Ready, func(p *producer) { _ = p.c.SetDeadline(time.Now()) }, l.one)
}

// one is the life of one producer: it sends a record from time to time.
func (l Crowd) one(ctx context.Context, i int, p *producer, begun time.Time) (r Result, err error) {
	for at := l.Every * time.Duration(i) / time.Duration(l.Active); at < l.For; at += l.Every {
		if !rpc.Pause(ctx, at-time.Since(begun)) {
			return r, context.Cause(ctx)
		}
		sent := time.Now()
		if err := p.send(); err != nil {
			return r, err
		}
		if err := p.receive(); err != nil {
			return r, err
		}
		r.Latencies = append(r.Latencies, time.Since(sent))
		r.Records, r.Requests, r.Bytes = r.Records+1, r.Requests+1, r.Bytes+int64(len(l.Batch))
	}
	return r, nil
}

func dialIdle(ctx context.Context, addr string) (*rpc.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := rpc.New(c, idleBuffer)
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, rpc.ClientID, "1"
	if _, err := rpc.Ask[*kmsg.ApiVersionsResponse](conn, req, rpc.Patience); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// idleBuffer is small: there are many.
const idleBuffer = 512
