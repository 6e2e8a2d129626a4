package plugin

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
	"github.com/brokerd/brokerd/sdk/storage"
)

// unitsInFlightMax bounds the units of one stream that were taken from it and
// whose answers were not sent. When it is reached the stream is not read any
// further, and the client's window fills.
const unitsInFlightMax = 1024

// serverLane serves one stream.
type serverLane struct {
	store  storage.Store
	stream grpc.ServerStream
	// slots has an entry for each unit in flight. answers has room for as many,
	// so that completions never block.
	slots   chan struct{}
	answers chan answer
	wg      sync.WaitGroup
}

// Data implements the service Storage. It returns when the client ends the
// stream, having answered what came before, or when the stream breaks.
func (s *StorageServer) Data(stream grpc.BidiStreamingServer[storagev1.Frame, storagev1.Frame]) error {
	store, err := s.current()
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	l := &serverLane{
		store:   store,
		stream:  stream,
		slots:   make(chan struct{}, unitsInFlightMax),
		answers: make(chan answer, unitsInFlightMax),
	}
	return l.run(stream.Context())
}

// run reads requests until the stream ends. A completion that comes after it
// has returned is lost, as the client is.
func (l *serverLane) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		err := l.send(ctx)
		cancel()
		sent <- err
	}()
	err := l.receive(ctx)
	if err == nil { // wait for the answers: all slots can be had when none is out
		for range unitsInFlightMax {
			select {
			case l.slots <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}
	cancel()
	l.wg.Wait()
	return errors.Join(err, <-sent)
}

// receive takes frames from the stream and hands on their units. Nil is the
// client's orderly end.
func (l *serverLane) receive(ctx context.Context) error {
	for {
		var f frame
		if err := l.stream.RecvMsg(&f); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		err := splitUnits(f.value, func(unit []byte) error { return l.dispatch(ctx, unit, f.buf) })
		f.free()
		if err != nil {
			if errors.Is(err, errUnit) {
				return status.Error(codes.InvalidArgument, err.Error())
			}
			return err
		}
	}
}

// dispatch begins one unit, whose bytes are a part of buf.
func (l *serverLane) dispatch(ctx context.Context, unit []byte, buf mem.Buffer) error {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	r, err := parseRequest(unit)
	to := head{kind: r.kind | kindAnswer, seq: r.seq, handle: r.handle}
	if err != nil {
		l.answers <- answer{head: to, err: storage.Errorf(storage.ErrInvalid, "%v", err)}
		return nil
	}
	switch r.kind {
	case kindAppend:
		buf.Ref() // the store has the bytes until the completion
		l.store.Append(ctx, r.append, func(res storage.AppendResult, err error) {
			buf.Free()
			l.answers <- answer{head: to, append: res, err: err}
		})
	case kindRead:
		l.wg.Go(func() {
			ctx, cancel := withUnitTimeout(ctx, r.head)
			defer cancel()
			res, err := l.store.Read(ctx, r.read)
			if err == nil && len(res.Data) > maxReadBytes {
				err = storage.Errorf(storage.ErrInvalid, "%d bytes are more than the lane carries at once", len(res.Data))
			}
			l.answers <- answer{head: to, read: res, err: err}
		})
	case kindReplace:
		buf.Ref()
		l.wg.Go(func() {
			defer buf.Free()
			ctx, cancel := withUnitTimeout(ctx, r.head)
			defer cancel()
			l.answers <- answer{head: to, err: l.store.Replace(ctx, r.replace)}
		})
	}
	return nil
}

func withUnitTimeout(ctx context.Context, h head) (context.Context, context.CancelFunc) {
	if h.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, h.timeout)
}

// send sends answers until ctx ends, as many in a frame as wait.
func (l *serverLane) send(ctx context.Context) error {
	for {
		var a answer
		select {
		case a = <-l.answers:
		case <-ctx.Done():
			return nil
		}
		var p packer
		units := 0
		for more := true; more; {
			pack(&p, answerBytesMax(&a), appendAnswer, &a)
			units++
			if p.bytes >= coalesceBytes {
				break
			}
			select {
			case a = <-l.answers:
			default:
				more = false
			}
		}
		if err := l.stream.SendMsg(&frame{parts: p.parts()}); err != nil {
			return err
		}
		for range units {
			<-l.slots
		}
	}
}
