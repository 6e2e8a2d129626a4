package storagetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// env is what one case works with: a fresh backing and a store open on it. Its
// methods fail the case by panicking with a failure, so they are called from
// the case's own goroutine only; the ones named try... return errors instead.
type env struct {
	ctx     context.Context
	target  Target
	backing Backing
	store   storage.Store
	rng     *rand.Rand
	start   time.Time // about when the case began, in whole milliseconds
	// twice counts completions that came after the first one of their append.
	twice *atomic.Int64
	ids   *idSet
}

// failure is what a failed case panics with.
type failure string

func (e *env) failf(format string, args ...any) {
	panic(failure(fmt.Sprintf(format, args...)))
}

// must fails the case on an error.
func (e *env) must(err error, act string) {
	if err != nil {
		e.failf("%s: %v", act, err)
	}
}

// wantClass fails the case unless err is of one of the classes.
func (e *env) wantClass(err error, act string, classes ...error) {
	for _, class := range classes {
		if errors.Is(err, class) {
			return
		}
	}
	if err == nil {
		e.failf("%s succeeded; want an error of class %v", act, classes)
	}
	e.failf("%s: got %q (class %q); want class %v", act, err, storage.Class(err), classes)
}

// openStore opens a store on the backing.
func (e *env) openStore() {
	e.must(e.tryOpenStore(), "open the store")
}

func (e *env) tryOpenStore() error {
	store, _, err := e.backing.Open(e.ctx, e.backing.Config())
	if err == nil {
		e.store, e.ids = store, new(idSet)
	}
	return err
}

// restart shuts the store down in order and opens it again.
func (e *env) restart() {
	e.must(e.store.Shutdown(e.ctx), "shut the store down")
	e.openStore()
}

// kill kills the store and opens it again.
func (e *env) kill() {
	e.must(e.backing.Kill(e.ctx), "kill the store")
	e.openStore()
}

// losePower takes the machine's power and opens the store again.
func (e *env) losePower() {
	e.must(e.backing.LosePower(e.ctx, e.rng.Uint64()), "lose power")
	e.openStore()
}

// logID returns the ID of the case's nth log.
func logID(n int) storage.LogID {
	id := storage.LogID{Partition: int32(n % 7)}
	copy(id.Topic[:], fmt.Sprintf("topic-%010d", n/7))
	return id
}

// log opens log n, creating it, with leader epoch 1.
func (e *env) log(n int) storage.OpenResult { return e.logAt(n, 1) }

func (e *env) logAt(n int, epoch int32) storage.OpenResult {
	return e.logWith(storage.OpenSpec{ID: logID(n), Label: fmt.Sprintf("log-%d", n), Create: true, LeaderEpoch: epoch})
}

func (e *env) logWith(spec storage.OpenSpec) storage.OpenResult {
	result, err := e.tryOpen(spec)
	e.must(err, fmt.Sprintf("open log %s", spec.Label))
	if result.Handle == 0 {
		e.failf("open log %s: the handle is zero", spec.Label)
	}
	if result.Verdict != storage.VerdictIntact && result.Verdict != storage.VerdictMayHaveLostSuffix {
		e.failf("open log %s: %d is not a verdict", spec.Label, result.Verdict)
	}
	return result
}

func (e *env) tryOpen(spec storage.OpenSpec) (storage.OpenResult, error) {
	results := e.store.Open(e.ctx, []storage.OpenSpec{spec})
	if len(results) != 1 {
		return storage.OpenResult{}, fmt.Errorf("open of one log gave %d results", len(results))
	}
	return results[0], results[0].Err
}

// made is a batch that the kit made.
type made struct {
	storage.BatchInfo
	data []byte
}

// end is the offset after the batch.
func (m made) end() int64 { return m.LastOffset + 1 }

// batch makes a batch of n offsets from base, with random contents, stamped in
// the order of offsets.
func (e *env) batch(base int64, n int, epoch int32) made {
	return e.batchAt(base, n, epoch, e.start.UnixMilli()-1_000_000+base)
}

// batchAt makes a batch whose greatest timestamp is ms.
func (e *env) batchAt(base int64, n int, epoch int32, ms int64) made {
	return makeBatch(e.rng, base, n, epoch, ms, e.rng.IntN(200))
}

func makeBatch(rng *rand.Rand, base int64, n int, epoch int32, ms int64, size int) made {
	payload := randomBytes(rng, size)
	data := recordbatch.Build(nil, recordbatch.Header{
		Info: recordbatch.Info{
			BaseOffset:    base,
			LastOffset:    base + int64(n) - 1,
			LeaderEpoch:   epoch,
			BaseTimestamp: ms,
			MaxTimestamp:  ms,
			ProducerID:    rng.Int64N(1000),
			ProducerEpoch: int16(rng.IntN(10)),
			BaseSequence:  rng.Int32N(1000),
			Records:       int32(n),
		},
		Payload: payload,
	})
	info, err := recordbatch.Parse(data)
	if err != nil {
		panic(fmt.Sprintf("the kit made a bad batch: %v", err))
	}
	return made{info, data}
}

// randomBytes returns n random bytes.
func randomBytes(rng *rand.Rand, n int) []byte {
	data := make([]byte, 0, n+8)
	for len(data) < n {
		data = binary.LittleEndian.AppendUint64(data, rng.Uint64())
	}
	return data[:n:n]
}

// batches makes count batches from base on, of 1 to 5 offsets each.
func (e *env) batches(base int64, count int, epoch int32) []made {
	list := make([]made, count)
	for i := range list {
		list[i] = e.batch(base, 1+e.rng.IntN(5), epoch)
		base = list[i].end()
	}
	return list
}

// join returns the batches' bytes, back to back, and what describes them.
func join(batches []made) ([]storage.BatchInfo, []byte) {
	var infos []storage.BatchInfo
	var data []byte
	for _, b := range batches {
		infos, data = append(infos, b.BatchInfo), append(data, b.data...)
	}
	return infos, data
}

// endOf returns the end of the last batch, or base.
func endOf(batches []made, base int64) int64 {
	if len(batches) == 0 {
		return base
	}
	return batches[len(batches)-1].end()
}

// pending is an append that was asked for.
type pending struct {
	req    storage.AppendRequest
	result storage.AppendResult
	err    error
	calls  atomic.Int64
	done   chan struct{}
}

// request is an append of batches at base under epoch.
func request(h storage.Handle, epoch int32, base int64, batches ...made) storage.AppendRequest {
	infos, data := join(batches)
	return storage.AppendRequest{Handle: h, LeaderEpoch: epoch, BaseOffset: base, Batches: infos, Data: [][]byte{data}}
}

// begin queues an append.
func (e *env) begin(req storage.AppendRequest) *pending {
	p := &pending{req: req, done: make(chan struct{})}
	e.beginWith(e.ctx, p)
	return p
}

// beginWith queues an append whose outcome p takes. A second completion fails
// the case at its end.
func (e *env) beginWith(ctx context.Context, p *pending) {
	e.store.Append(ctx, p.req, func(result storage.AppendResult, err error) {
		if p.calls.Add(1) > 1 {
			e.twice.Add(1)
			return
		}
		p.result, p.err = result, err
		close(p.done)
	})
}

// wait returns the append's outcome; ErrUnknown when there is none in time.
func (p *pending) wait(ctx context.Context) (storage.AppendResult, error) {
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
		return storage.AppendResult{}, storage.Errorf(storage.ErrUnknown, "no completion came: %v", ctx.Err())
	}
}

// tryAppend appends and waits.
func (e *env) tryAppend(req storage.AppendRequest) (storage.AppendResult, error) {
	return e.begin(req).wait(e.ctx)
}

// append appends batches under their own leader epoch at base, and checks the
// acknowledgement.
func (e *env) append(h storage.Handle, base int64, batches ...made) {
	epoch := batches[len(batches)-1].LeaderEpoch
	req := request(h, epoch, base, batches...)
	if len(batches) > 1 && base%2 == 1 {
		req.Data = inParts(batches, 1, len(batches)-1)
	}
	result, err := e.tryAppend(req)
	e.must(err, fmt.Sprintf("append at %d", base))
	if want := endOf(batches, base); result.LEO != want {
		e.failf("append at %d: acknowledged with LEO %d, want %d", base, result.LEO, want)
	}
	if result.Survives < storage.SurvivesProcess {
		e.failf("append at %d: acknowledged as surviving level %d, less than the process", base, result.Survives)
	}
	if result.Durable > result.LEO {
		e.failf("append at %d: durable up to %d, above the LEO %d", base, result.Durable, result.LEO)
	}
}

// fill appends count random batches one by one from base on.
func (e *env) fill(h storage.Handle, base int64, count int, epoch int32) []made {
	list := e.batches(base, count, epoch)
	for _, b := range list {
		e.append(h, b.BaseOffset, b)
	}
	return list
}

// readAll reads from offset to upTo.
func (e *env) readAll(h storage.Handle, offset, upTo int64) ([]byte, error) {
	var all []byte
	for {
		result, err := e.store.Read(e.ctx, storage.ReadRequest{
			Handle: h, Offset: offset, UpTo: upTo, MaxBytes: 1 << 20, AtLeastOne: true,
		})
		if err != nil {
			return all, fmt.Errorf("read from %d up to %d: %w", offset, upTo, err)
		}
		if len(result.Data) == 0 {
			return all, nil
		}
		if result.Next <= offset {
			return all, fmt.Errorf("read from %d up to %d: next is %d", offset, upTo, result.Next)
		}
		all, offset = append(all, result.Data...), result.Next
	}
}

// checkLog fails the case unless the open log holds exactly the batches, and
// begins and ends where told.
func (e *env) checkLog(h storage.Handle, when string, start, leo int64, want []made) {
	if err := e.tryCheckLog(h, start, leo, want); err != nil {
		e.failf("%s: %v", when, err)
	}
}

func (e *env) tryCheckLog(h storage.Handle, start, leo int64, want []made) error {
	infos, data := join(want)
	got, err := e.readAll(h, start, leo)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("the log reads %s; want %s", describe(got), describe(data))
	}
	scanned, err := e.store.Scan(e.ctx, storage.ScanRequest{Handle: h, Offset: start, UpTo: leo})
	if err != nil {
		return fmt.Errorf("scan from %d: %w", start, err)
	}
	if len(scanned) != len(infos) {
		return fmt.Errorf("a scan finds %d batches; want %d", len(scanned), len(infos))
	}
	for i := range infos {
		if scanned[i] != infos[i] {
			return fmt.Errorf("a scan finds %+v as batch %d; want %+v", scanned[i], i, infos[i])
		}
	}
	if start > 0 {
		if _, err := e.store.Read(e.ctx, storage.ReadRequest{Handle: h, Offset: start - 1, UpTo: leo, MaxBytes: 1}); !errors.Is(err, storage.ErrInvalid) {
			return fmt.Errorf("a read at %d, below the log start %d: got %s, want class invalid", start-1, start, fmt.Sprint(err))
		}
	}
	if _, err := e.store.Read(e.ctx, storage.ReadRequest{Handle: h, Offset: leo + 1, UpTo: leo + 2, MaxBytes: 1}); !errors.Is(err, storage.ErrInvalid) {
		return fmt.Errorf("a read at %d, above the LEO %d: got %s, want class invalid", leo+1, leo, fmt.Sprint(err))
	}
	return nil
}

// checkOpened checks an opening's offsets and the log behind it.
func (e *env) checkOpened(r storage.OpenResult, when string, start, leo int64, want []made) {
	if r.LogStart != start || r.LEO != leo {
		e.failf("%s: the log opens with offsets %d to %d; want %d to %d", when, r.LogStart, r.LEO, start, leo)
	}
	if r.Durable > r.LEO {
		e.failf("%s: durable up to %d, above the LEO %d", when, r.Durable, r.LEO)
	}
	e.checkLog(r.Handle, when, start, leo, want)
}

// describe tells what a log's bytes hold, for messages.
func describe(data []byte) string {
	var spans []string
	rest := data
	for len(rest) > 0 {
		info, _, tail, err := recordbatch.Next(rest)
		if err != nil {
			spans = append(spans, fmt.Sprintf("%d bytes that are %v", len(rest), err))
			break
		}
		spans, rest = append(spans, fmt.Sprintf("%d-%d", info.BaseOffset, info.LastOffset)), tail
	}
	const most = 12
	if n := len(spans); n > most {
		spans = append(append(spans[:most/2:most/2], "..."), spans[n-most/2:]...)
	}
	return fmt.Sprintf("%d bytes, offsets %v", len(data), spans)
}

// withSetting returns the settings, a JSON object, with one more key.
func withSetting(settings []byte, name string) []byte {
	object := bytes.TrimSpace(settings)
	if len(object) == 0 {
		object = []byte("{}")
	}
	head := bytes.TrimSpace(bytes.TrimSuffix(object, []byte("}")))
	if !bytes.HasSuffix(head, []byte("{")) {
		head = append(bytes.Clone(head), ',')
	}
	return fmt.Appendf(bytes.Clone(head), "%q: 1}", name)
}
