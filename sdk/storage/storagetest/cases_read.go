package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/sdk/storage"
)

func readCases() []Case {
	return []Case{
		{Name: "read-offset", About: "a read begins with the batch that contains the offset, or the first after it where there is a gap", run: readOffset},
		{Name: "read-up-to", About: "a read returns only batches whose last offset is below UpTo", run: readUpTo},
		{Name: "read-max-bytes", About: "a read returns whole batches of at most MaxBytes, yet one with AtLeastOne", run: readMaxBytes},
		{Name: "read-end", About: "a read with nothing to return is empty and no error", run: readEnd},
		{Name: "read-out-of-range", About: "a read below the log start or above the LEO is ErrInvalid", run: readOutOfRange},
		{Name: "read-immutable", About: "bytes that were returned are the caller's: nobody else changes them, and changing them harms nobody", run: readImmutable},
	}
}

// gappy fills a log with batches between some of which offsets are missing.
func (e *env) gappy() (storage.Handle, []made) {
	r := e.log(0)
	var b []made
	at := int64(0)
	for i := range 60 {
		m := e.batch(at, 1+e.rng.IntN(6), 1)
		if i > 0 && e.rng.IntN(3) == 0 {
			m = e.batch(at+int64(1+e.rng.IntN(5)), 1+e.rng.IntN(6), 1)
		}
		e.append(r.Handle, at, m)
		b, at = append(b, m), m.end()
	}
	return r.Handle, b
}

// modelRead is what a read must return, with one exception: a store may return
// fewer batches, though at least one, since it may stop where its files end.
func modelRead(b []made, req storage.ReadRequest) (data []byte, next int64, count int) {
	next = req.Offset
	for _, m := range b {
		if m.LastOffset < req.Offset {
			continue
		}
		if m.LastOffset >= req.UpTo {
			break
		}
		if len(data)+len(m.data) > req.MaxBytes && (count > 0 || !req.AtLeastOne) {
			break
		}
		data, next, count = append(data, m.data...), m.end(), count+1
	}
	return data, next, count
}

// tryRead reads and compares with what the batches say. Every other read has room
// to read into, now and then enough.
func (e *env) tryRead(b []made, req storage.ReadRequest) error {
	if req.Offset%2 == 0 {
		req.Buf = make([]byte, max(0, min(req.MaxBytes, 1<<14))*int(req.Offset%5)/3)
	}
	got, err := e.store.Read(e.ctx, req)
	if err != nil {
		req.Buf = nil // nobody wants to read it
		return fmt.Errorf("read %+v: %w", req, err)
	}
	return checkRead(b, req, got)
}

// checkRead compares what a read returned with what the batches say.
func checkRead(b []made, req storage.ReadRequest, got storage.ReadResult) error {
	req.Buf = nil // of no importance
	want, next, count := modelRead(b, req)
	if !bytes.HasPrefix(want, got.Data) || (count > 0) != (len(got.Data) > 0) {
		return fmt.Errorf("read %+v returns %s; want %s", req, describe(got.Data), describe(want))
	}
	if len(got.Data) == len(want) && got.Next != next {
		return fmt.Errorf("read %+v: next is %d; want %d", req, got.Next, next)
	}
	if len(got.Data) == len(want) {
		return nil
	}
	// Fewer batches: whole ones, and Next says where they end.
	for _, m := range b {
		if m.end() == got.Next {
			short := req
			short.UpTo = got.Next
			if want, _, _ = modelRead(b, short); bytes.Equal(got.Data, want) {
				return nil
			}
		}
	}
	return fmt.Errorf("read %+v returns %s and next %d, which are not whole batches", req, describe(got.Data), got.Next)
}

func readOffset(e *env) {
	h, b := e.gappy()
	leo := endOf(b, 0)
	check := func() {
		for offset := int64(0); offset <= leo; offset++ {
			e.must(e.tryRead(b, storage.ReadRequest{Handle: h, Offset: offset, UpTo: leo, MaxBytes: 1 + e.rng.IntN(2000), AtLeastOne: true}), "read")
		}
	}
	check()
	e.restart()
	h = e.log(0).Handle
	check()
}

func readUpTo(e *env) {
	h, b := e.gappy()
	leo := endOf(b, 0)
	for upTo := int64(0); upTo <= leo+3; upTo++ {
		for _, offset := range []int64{0, upTo - 1, upTo, upTo + 1, e.rng.Int64N(leo)} {
			offset = min(max(offset, 0), leo)
			e.must(e.tryRead(b, storage.ReadRequest{Handle: h, Offset: offset, UpTo: upTo, MaxBytes: 1 << 20, AtLeastOne: true}), "read")
		}
	}
}

func readMaxBytes(e *env) {
	h, b := e.gappy()
	leo := endOf(b, 0)
	for size := 0; size < 1200; size += 1 + e.rng.IntN(7) {
		for _, one := range []bool{false, true} {
			e.must(e.tryRead(b, storage.ReadRequest{Handle: h, Offset: e.rng.Int64N(leo), UpTo: leo, MaxBytes: size, AtLeastOne: one}), "read")
		}
	}
	e.must(e.tryRead(b, storage.ReadRequest{Handle: h, Offset: 0, UpTo: leo, MaxBytes: 0, AtLeastOne: true}), "read")
	e.must(e.tryRead(b, storage.ReadRequest{Handle: h, Offset: 0, UpTo: 0, MaxBytes: 100, AtLeastOne: true}), "read")
}

func readEnd(e *env) {
	r := e.log(0)
	for _, req := range []storage.ReadRequest{
		{Handle: r.Handle, UpTo: 0, MaxBytes: 100, AtLeastOne: true},
		{Handle: r.Handle, UpTo: 100, MaxBytes: 100, AtLeastOne: true},
	} {
		e.must(e.tryRead(nil, req), "read an empty log")
	}
	b := e.fill(r.Handle, 0, 5, 1)
	leo := endOf(b, 0)
	for _, req := range []storage.ReadRequest{
		{Offset: leo, UpTo: leo, MaxBytes: 100, AtLeastOne: true},
		{Offset: leo, UpTo: leo + 100, MaxBytes: 100, AtLeastOne: true},
		{Offset: 0, UpTo: -5, MaxBytes: 100, AtLeastOne: true},
		{Offset: 0, UpTo: leo, MaxBytes: -5},
		{Offset: 0, UpTo: leo, MaxBytes: 60},
	} {
		req.Handle = r.Handle
		e.must(e.tryRead(b, req), "read nothing")
	}
}

func readOutOfRange(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 10, 1)
	leo := endOf(b, 0)
	start := b[4].end()
	_, err := e.store.Trim(e.ctx, r.Handle, start)
	e.must(err, "trim")
	for _, offset := range []int64{-1, 0, start - 1, leo + 1, leo + 1000} {
		for _, one := range []bool{false, true} {
			_, err := e.store.Read(e.ctx, storage.ReadRequest{Handle: r.Handle, Offset: offset, UpTo: leo + 1000, MaxBytes: 1 << 20, AtLeastOne: one})
			e.wantClass(err, fmt.Sprintf("read at %d of a log from %d to %d", offset, start, leo), storage.ErrInvalid)
		}
	}
	e.checkLog(r.Handle, "after reads out of range", start, leo, b[5:])
}

func readImmutable(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 20, 1)
	leo := endOf(b, 0)
	read := func() []byte {
		result, err := e.store.Read(e.ctx, storage.ReadRequest{Handle: r.Handle, UpTo: leo, MaxBytes: 1 << 20})
		e.must(err, "read")
		return result.Data
	}
	kept := read()
	want := bytes.Clone(kept)
	scribbled := read()
	for i := range scribbled {
		scribbled[i] ^= 0xff
	}
	if !bytes.Equal(kept, want) || !bytes.Equal(read(), want) {
		e.failf("bytes that one read returned are those of another, or of the store")
	}
	_, err := e.store.Truncate(e.ctx, r.Handle, 1, b[3].BaseOffset)
	e.must(err, "truncate")
	other := e.fill(r.Handle, b[3].BaseOffset, 20, 2)
	e.must(e.store.Flush(e.ctx, []storage.Handle{r.Handle})[0].Err, "flush")
	if !bytes.Equal(kept, want) {
		e.failf("bytes that a read had returned changed when the log was truncated and appended to")
	}
	kept = append(kept, 1, 2, 3) // over what may lie behind it
	e.checkLog(r.Handle, "after bytes were scribbled on", 0, endOf(other, 0), append(slices.Clone(b[:3]), other...))
	if !bytes.Equal(kept[:len(want)], want) {
		e.failf("bytes that a read had returned changed when other reads came")
	}

	blob := storage.Blob{Offset: 1, Data: []byte("checkpoint")}
	e.must(e.store.PutBlob(e.ctx, r.Handle, "b", blob), "put a blob")
	blob.Data[0] = 'X'
	got, _, err := e.store.GetBlob(e.ctx, r.Handle, "b")
	e.must(err, "get a blob")
	if string(got.Data) != "checkpoint" {
		e.failf("a blob changed with the caller's bytes: %q", got.Data)
	}
	got.Data[0] = 'Y'
	if got, _, err = e.store.GetBlob(e.ctx, r.Handle, "b"); err != nil || string(got.Data) != "checkpoint" {
		e.failf("a blob changed with bytes that were returned: %q, %v", got.Data, err)
	}
}

func scanCases() []Case {
	return []Case{
		{Name: "scan", About: "a scan returns the headers of the batches that a read would", run: scan},
		{Name: "scan-pages", About: "a scan returns MaxBatches headers, and fewer only at UpTo or the LEO", run: scanPages},
	}
}

// tryScan scans and compares with what the batches say.
func (e *env) tryScan(b []made, req storage.ScanRequest) error {
	got, err := e.store.Scan(e.ctx, req)
	if err != nil {
		return fmt.Errorf("scan %+v: %w", req, err)
	}
	limit := req.MaxBatches
	if limit == 0 {
		limit = 10_000
	}
	var want []storage.BatchInfo
	for _, m := range b {
		if m.LastOffset >= req.Offset && m.LastOffset < req.UpTo && len(want) < limit {
			want = append(want, m.BatchInfo)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("scan %+v returns %d headers, %+v; want %d, %+v", req, len(got), got, len(want), want)
	}
	return nil
}

func scan(e *env) {
	h, b := e.gappy()
	leo := endOf(b, 0)
	for offset := int64(0); offset <= leo; offset++ {
		upTo := e.rng.Int64N(leo + 3)
		e.must(e.tryScan(b, storage.ScanRequest{Handle: h, Offset: offset, UpTo: upTo}), "scan")
	}
	for _, offset := range []int64{-1, leo + 1} {
		if _, err := e.store.Scan(e.ctx, storage.ScanRequest{Handle: h, Offset: offset, UpTo: leo}); !errors.Is(err, storage.ErrInvalid) {
			e.failf("scan at %d of a log up to %d: got %v, want class invalid", offset, leo, err)
		}
	}
}

func scanPages(e *env) {
	h, b := e.gappy()
	leo := endOf(b, 0)
	for _, page := range []int{1, 2, 7, 59, 60, 61, 10_000, 0} {
		e.must(e.tryScan(b, storage.ScanRequest{Handle: h, Offset: e.rng.Int64N(leo), UpTo: leo, MaxBatches: page}), "scan")
		e.must(e.tryScan(b, storage.ScanRequest{Handle: h, UpTo: leo, MaxBatches: page}), "scan")
		var all []storage.BatchInfo
		offset := int64(0)
		for {
			infos, err := e.store.Scan(e.ctx, storage.ScanRequest{Handle: h, Offset: offset, UpTo: leo, MaxBatches: page})
			e.must(err, "scan")
			if len(infos) == 0 {
				break
			}
			all, offset = append(all, infos...), infos[len(infos)-1].LastOffset+1
		}
		if want, _ := join(b); !slices.Equal(all, want) {
			e.failf("pages of %d headers give %d headers; want %d", page, len(all), len(want))
		}
	}
}

func timestampCases() []Case {
	return []Case{
		{Name: "timestamp-first", About: "FirstAtOrAfter finds the first batch in offset order that holds such a record, also when time runs backwards", run: timestampFirst},
		{Name: "timestamp-latest", About: "Latest finds the first batch with the greatest timestamp", run: timestampLatest},
		{Name: "timestamp-bounds", About: "a search by time sees neither what was trimmed or truncated, nor what reaches UpTo", run: timestampBounds},
	}
}

// modelTimestamp is what FindTimestamp must answer.
func modelTimestamp(b []made, start int64, q storage.TimestampQuery) (best storage.BatchInfo, found bool) {
	for _, m := range b {
		if m.LastOffset < start || m.LastOffset >= q.UpTo {
			continue
		}
		if q.Kind == storage.FirstAtOrAfter && m.MaxTimestamp >= q.Timestamp {
			return m.BatchInfo, true
		}
		if q.Kind == storage.Latest && (!found || m.MaxTimestamp > best.MaxTimestamp) {
			best, found = m.BatchInfo, true
		}
	}
	return best, found
}

func (e *env) tryTimestamp(b []made, start int64, q storage.TimestampQuery) error {
	got, found, err := e.store.FindTimestamp(e.ctx, q)
	if err != nil {
		return fmt.Errorf("find %+v: %w", q, err)
	}
	want, there := modelTimestamp(b, start, q)
	if found != there || got != want && found {
		return fmt.Errorf("find %+v gives %v %+v; want %v %+v", q, found, got, there, want)
	}
	return nil
}

// stamped fills log n with batches whose timestamps are near the base, in no
// order and with ties.
func (e *env) stamped(n, count int) (h storage.Handle, b []made, base int64) {
	r := e.logWith(storage.OpenSpec{
		ID: logID(n), Label: "stamped", Create: true, LeaderEpoch: 1,
		Options: storage.LogOptions{SegmentBytes: 2048, IndexIntervalBytes: 256},
	})
	base = e.start.UnixMilli() - 1_000_000
	for range count {
		at := endOf(b, 0)
		m := e.batchAt(at, 1+e.rng.IntN(4), 1, base+at/3*2+int64(e.rng.IntN(60)))
		e.append(r.Handle, at, m)
		b = append(b, m)
	}
	return r.Handle, b, base
}

func timestampFirst(e *env) {
	h, b, base := e.stamped(0, 120)
	leo := endOf(b, 0)
	check := func() {
		for ms := base - 2; ms < base+leo+70; ms++ {
			e.must(e.tryTimestamp(b, 0, storage.TimestampQuery{Handle: h, Timestamp: ms, UpTo: leo}), "search by time")
		}
	}
	check()
	e.restart()
	h = e.log(0).Handle
	check()
}

func timestampLatest(e *env) {
	h, b, _ := e.stamped(0, 120)
	for upTo := int64(0); upTo <= endOf(b, 0)+1; upTo++ {
		e.must(e.tryTimestamp(b, 0, storage.TimestampQuery{Handle: h, Kind: storage.Latest, UpTo: upTo}), "search for the latest")
	}
}

func timestampBounds(e *env) {
	h, b, base := e.stamped(0, 120)
	check := func(when string, start int64) {
		for range 200 {
			q := storage.TimestampQuery{
				Handle:    h,
				Kind:      storage.TimestampKind(e.rng.IntN(2)),
				Timestamp: base + e.rng.Int64N(endOf(b, 0)+60),
				UpTo:      start + e.rng.Int64N(endOf(b, 0)-start+2),
			}
			e.must(e.tryTimestamp(b, start, q), when)
		}
	}
	check("search below UpTo", 0)
	leo, err := e.store.Truncate(e.ctx, h, 1, b[90].BaseOffset+1)
	e.must(err, "truncate")
	b = b[:countBelow(b, leo)]
	check("search after truncation", 0)
	start := b[30].LastOffset
	_, err = e.store.Trim(e.ctx, h, start)
	e.must(err, "trim")
	check("search after trimming", start)
	e.restart()
	h = e.log(0).Handle
	check("search after trimming and a restart", start)
}
