package plugin

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
	"github.com/brokerd/brokerd/sdk/storage"
)

// unitsInFlightMax bounds the units of one lane that were taken from it and whose
// answers were not sent. When it is reached the lane is not read any further, and
// the client's window fills.
const unitsInFlightMax = 1024

// serverLane serves one lane.
type serverLane struct {
	store storage.Store
	to    link
	// wake tells the sender that there are answers, room the receiver that there is
	// room for another unit.
	wake, room chan struct{}
	appends    sync.Pool // of *serverAppend
	buffers    sync.Pool // of *[]byte, that reads go into
	wg         sync.WaitGroup

	mu      sync.Mutex
	taken   int // units in flight
	answers answers
}

func newServerLane(store storage.Store, to link) *serverLane {
	return &serverLane{store: store, to: to, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// Data implements the service Storage. It returns when the client ends the
// stream, having answered what came before, or when the stream breaks.
func (s *StorageServer) Data(stream grpc.BidiStreamingServer[storagev1.Frame, storagev1.Frame]) error {
	store, err := s.current()
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	err = newServerLane(store, streamLink{stream}).run(stream.Context())
	if errors.Is(err, errUnit) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// run reads requests until the lane ends. A completion that comes after it has
// returned is lost, as the client is.
func (l *serverLane) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		err := l.send(ctx)
		cancel()
		sent <- err
	}()
	err := l.to.receive(func(in incoming) error { return l.dispatch(ctx, in) })
	if errors.Is(err, io.EOF) { // an orderly end: wait for the answers
		l.settle(ctx)
		err = nil
	}
	cancel()
	l.wg.Wait()
	err = errors.Join(err, <-sent)
	l.dropAnswers()
	return err
}

// settle waits until every answer was sent.
func (l *serverLane) settle(ctx context.Context) {
	for {
		l.mu.Lock()
		left := l.taken
		l.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-l.room:
		case <-ctx.Done():
			return
		}
	}
}

// take counts a unit in, when there is room for it.
func (l *serverLane) take(ctx context.Context) error {
	for {
		l.mu.Lock()
		if l.taken < unitsInFlightMax {
			l.taken++
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		select {
		case <-l.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// serverAppend is an append that the store has. It is used again after its
// completion, as is the room in its request.
type serverAppend struct {
	lane *serverLane
	req  request
	mem  memory
	done func(storage.AppendResult, error) // its complete
}

func (l *serverLane) newAppend() *serverAppend {
	a, ok := l.appends.Get().(*serverAppend)
	if !ok {
		a = &serverAppend{lane: l}
		a.done = a.complete
	}
	return a
}

// put gives a back to those that can be used.
func (l *serverLane) put(a *serverAppend) {
	infos, data := a.req.append.Batches, a.req.append.Data
	clear(data)
	a.mem, a.req = nil, request{append: storage.AppendRequest{Batches: infos[:0], Data: data[:0]}}
	l.appends.Put(a)
}

// complete answers the append.
func (a *serverAppend) complete(res storage.AppendResult, err error) {
	a.mem.Free()
	l := a.lane
	to := a.req.answerHead()
	l.put(a)
	l.answer(answer{head: to, append: res, err: err})
}

// answerHead is the head of the answer to r.
func (r *request) answerHead() head {
	return head{kind: r.kind | kindAnswer, seq: r.seq, handle: r.handle}
}

// dispatch begins one unit.
func (l *serverLane) dispatch(ctx context.Context, in incoming) error {
	closeFile(in.file) // none is asked for
	if err := l.take(ctx); err != nil {
		return err
	}
	a := l.newAppend()
	err := parseRequest(in.unit, &a.req)
	if err == nil && a.req.kind > kindReplace && !l.to.filesPass() {
		err = errors.New("descriptors do not pass here")
	}
	switch {
	case err != nil:
		l.answer(answer{head: a.req.answerHead(), err: storage.Errorf(storage.ErrInvalid, "%v", err)})
	case a.req.kind == kindAppend || a.req.kind == kindTold:
		in.mem.Ref() // the store has the bytes until the completion
		a.mem = in.mem
		l.store.Append(ctx, a.req.append, a.done)
		return nil
	case a.req.kind == kindReplace:
		l.replace(ctx, a.req, in.mem)
	case a.req.kind == kindRead:
		l.read(ctx, a.req)
	default:
		l.serveFiles(ctx, a.req)
	}
	l.put(a)
	return nil
}

func (l *serverLane) replace(ctx context.Context, r request, mem memory) {
	mem.Ref()
	l.wg.Go(func() {
		defer mem.Free()
		ctx, cancel := withUnitTimeout(ctx, r.head)
		defer cancel()
		l.answer(answer{head: r.answerHead(), err: l.store.Replace(ctx, r.replace)})
	})
}

// readBufferMax is the largest buffer that is kept for another read.
const readBufferMax = 4 << 20

// read answers a read. The buffer that it is offered is used again when the
// answer was sent.
func (l *serverLane) read(ctx context.Context, r request) {
	l.wg.Go(func() {
		ctx, cancel := withUnitTimeout(ctx, r.head)
		defer cancel()
		var buf *[]byte
		if r.read.MaxBytes <= readBufferMax && l.to.filesPass() {
			buf = l.buffer(r.read.MaxBytes)
			r.read.Buf = *buf
		}
		res, err := l.store.Read(ctx, r.read)
		if err == nil && len(res.Data) > maxReadBytes {
			err = storage.Errorf(storage.ErrInvalid, "%d bytes are more than the lane carries at once", len(res.Data))
		}
		a := answer{head: r.answerHead(), read: res, err: err}
		if buf != nil {
			a.mem = &readBuffer{lane: l, buf: buf}
		}
		l.answer(a)
	})
}

// buffer returns a buffer of at least so many bytes.
func (l *serverLane) buffer(bytes int) *[]byte {
	if buf, ok := l.buffers.Get().(*[]byte); ok && len(*buf) >= bytes {
		return buf
	}
	buf := make([]byte, max(bytes, 64<<10))
	return &buf
}

// readBuffer is the memory of one read.
type readBuffer struct {
	lane *serverLane
	buf  *[]byte
}

// Ref is not used: there is one who has it.
func (*readBuffer) Ref() {}

// Free lets another read have the buffer.
func (r *readBuffer) Free() { r.lane.buffers.Put(r.buf) }

func withUnitTimeout(ctx context.Context, h head) (context.Context, context.CancelFunc) {
	if h.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, h.timeout)
}

// answer queues an answer. It never waits.
func (l *serverLane) answer(a answer) {
	l.mu.Lock()
	l.answers = append(l.answers, a)
	l.mu.Unlock()
	nudge(l.wake)
}

// send sends answers until ctx ends, as many together as there are. gRPC may read
// what it was given after the sending, so that nothing is taken back there.
func (l *serverLane) send(ctx context.Context) error {
	var batch answers
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return nil
		}
		runtime.Gosched() // so that completions that are about to come share a system call
		for {
			l.mu.Lock()
			batch, l.answers = l.answers, batch[:0]
			l.mu.Unlock()
			if len(batch) == 0 {
				break
			}
			err := l.to.send(&batch)
			l.sent(batch)
			if err != nil {
				return err
			}
		}
	}
}

// sent makes room for as many units as were answered.
func (l *serverLane) sent(batch answers) {
	for i := range batch {
		batch[i].drop()
	}
	clear(batch)
	l.mu.Lock()
	l.taken -= len(batch)
	l.mu.Unlock()
	nudge(l.room)
}

// dropAnswers gives back what answers hold that nobody gets any more.
func (l *serverLane) dropAnswers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.answers {
		l.answers[i].drop()
	}
	l.answers = nil
}
