package storagetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

func appendCases() []Case {
	return []Case{
		{Name: "append", About: "what was appended is acknowledged with its LEO and read back byte for byte", run: appendReads},
		{Name: "append-several", About: "one append may carry several batches", run: appendSeveral},
		{Name: "append-large", About: "batches of a megabyte and more are stored as they are", run: appendLarge},
		{Name: "append-base-offset", About: "an append whose base offset is not the LEO is ErrInvalid and does nothing", run: appendBaseOffset},
		{Name: "append-gap", About: "a batch may begin above the end of the one before it, which leaves a gap", run: appendGap},
		{Name: "append-crc", About: "a batch that is damaged anywhere under its CRC is ErrInvalid and does nothing", run: appendCRC},
		{Name: "append-garbage", About: "bytes that are not whole batches are ErrInvalid and do nothing", run: appendGarbage},
		{Name: "append-misdescribed", About: "an append whose Batches do not describe its Data is ErrInvalid and does nothing", run: appendMisdescribed},
		{Name: "append-epoch-order", About: "leader epochs of batches do not fall along the log nor exceed the request's", run: appendEpochOrder},
		{Name: "append-require", About: "an acknowledgement survives at least what the append requires, and what cannot be given is ErrInvalid", run: appendRequire},
		{Name: "append-bytes", About: "the store neither changes nor keeps the caller's bytes", run: appendBytes},
	}
}

func appendReads(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 40, 1)
	e.checkLog(r.Handle, "after appends", 0, endOf(b, 0), b)
	e.restart()
	e.checkOpened(e.log(0), "after a restart", 0, endOf(b, 0), b)
}

func appendSeveral(e *env) {
	r := e.log(0)
	var b []made
	for n := 1; n <= 12; n++ {
		more := e.batches(endOf(b, 0), n, 1)
		e.append(r.Handle, endOf(b, 0), more...)
		b = append(b, more...)
	}
	e.checkLog(r.Handle, "after appends of several batches", 0, endOf(b, 0), b)
	e.restart()
	e.checkOpened(e.log(0), "after a restart", 0, endOf(b, 0), b)
}

func appendLarge(e *env) {
	r := e.log(0)
	var b []made
	for _, size := range []int{1 << 20, 1<<20 + 1, 3 << 20, 0, 64 << 10} {
		m := makeBatch(e.rng, endOf(b, 0), 10, 1, e.start.UnixMilli(), size)
		e.append(r.Handle, m.BaseOffset, m)
		b = append(b, m)
	}
	e.checkLog(r.Handle, "after large appends", 0, endOf(b, 0), b)
}

// refuse checks that an append is ErrInvalid.
func (e *env) refuse(act string, req storage.AppendRequest) {
	_, err := e.tryAppend(req)
	e.wantClass(err, act, storage.ErrInvalid)
}

func appendBaseOffset(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 5, 1)
	leo := endOf(b, 0)
	for _, base := range []int64{leo + 1, leo + 1000, leo - 1, 0} {
		e.refuse(fmt.Sprintf("append at %d to a log that ends at %d", base, leo), request(r.Handle, 1, base, e.batch(base, 3, 1)))
	}
	e.refuse("append a batch that begins below the base offset", request(r.Handle, 1, leo, e.batch(leo-1, 3, 1)))
	e.checkLog(r.Handle, "after appends at other offsets", 0, leo, b)
	next := e.batch(leo, 3, 1)
	e.append(r.Handle, leo, next)
	e.checkLog(r.Handle, "appended at the LEO", 0, next.end(), append(b, next))
}

func appendGap(e *env) {
	r := e.log(0)
	first := e.batch(100, 5, 1) // a log that was compacted from its start
	e.append(r.Handle, 0, first)
	b := []made{first}
	inside := []made{e.batch(110, 2, 1), e.batch(120, 2, 1), e.batch(122, 1, 1)}
	e.append(r.Handle, 105, inside...)
	b = append(b, inside...)
	overlapping := []made{e.batch(123, 5, 1), e.batch(127, 5, 1)}
	e.refuse("append batches that overlap", request(r.Handle, 1, 123, overlapping...))
	e.refuse("append batches that fall back", request(r.Handle, 1, 123, e.batch(130, 2, 1), e.batch(125, 2, 1)))
	e.checkLog(r.Handle, "with gaps", 0, 123, b)
	e.restart()
	e.checkOpened(e.log(0), "with gaps, after a restart", 0, 123, b)
}

func appendCRC(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 3, 1)
	leo := endOf(b, 0)
	const crcStart = 17 // of the CRC field, and what it covers follows
	for i := range 40 {
		good := e.batch(leo, 3, 1)
		bad := made{good.BatchInfo, bytes.Clone(good.data)}
		at := crcStart + e.rng.IntN(len(bad.data)-crcStart)
		bad.data[at] ^= 1 << e.rng.IntN(8)
		if info, err := recordbatch.Parse(bad.data); err == nil && i%2 == 0 {
			bad.BatchInfo = info // as honestly described as can be
		}
		req := request(r.Handle, 1, leo, bad)
		if i%3 == 0 { // behind a good one
			follows := e.batch(leo, 1, 1)
			moved := bytes.Clone(bad.data)
			recordbatch.Stamp(moved, follows.end(), 1)
			bad.data, bad.BaseOffset, bad.LastOffset = moved, follows.end(), follows.end()+(bad.LastOffset-bad.BaseOffset)
			req = request(r.Handle, 1, leo, follows, bad)
		}
		e.refuse(fmt.Sprintf("append a batch with a bit flipped in byte %d", at), req)
	}
	e.checkLog(r.Handle, "after damaged appends", 0, leo, b)
}

func appendGarbage(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 3, 1)
	leo := endOf(b, 0)
	good := e.batch(leo, 3, 1)
	try := func(what string, change func(data []byte) []byte) {
		req := request(r.Handle, 1, leo, good)
		req.Data = [][]byte{change(bytes.Clone(req.Data[0]))}
		e.refuse("append "+what, req)
	}
	for _, length := range []int32{0, -1, 1<<31 - 1, -1 << 31, 48, int32(len(good.data))} {
		try(fmt.Sprintf("a batch whose length field is %d", length), func(data []byte) []byte {
			binary.BigEndian.PutUint32(data[8:], uint32(length))
			return data
		})
	}
	for _, keep := range []int{0, 1, 16, 60, len(good.data) - 1} {
		try(fmt.Sprintf("the first %d bytes of a batch", keep), func(data []byte) []byte { return data[:keep] })
	}
	for _, magic := range []byte{0, 1, 3, 255} {
		try(fmt.Sprintf("a batch of magic %d", magic), func(data []byte) []byte { data[16] = magic; return data })
	}
	try("a batch with a byte behind it", func(data []byte) []byte { return append(data, 0) })
	try("a batch with half a batch behind it", func(data []byte) []byte { return append(data, data[:len(data)/2]...) })
	try("a batch twice, described once", func(data []byte) []byte { return append(data, data...) })
	try("random bytes", func(data []byte) []byte { return randomBytes(e.rng, len(data)) })
	e.checkLog(r.Handle, "after garbage", 0, leo, b)
}

func appendMisdescribed(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 3, 1)
	leo := endOf(b, 0)
	good := e.batches(leo, 2, 1)
	for _, lie := range []struct {
		name string
		tell func(*storage.BatchInfo)
	}{
		{"base offset", func(i *storage.BatchInfo) { i.BaseOffset++ }},
		{"last offset", func(i *storage.BatchInfo) { i.LastOffset++ }},
		{"leader epoch", func(i *storage.BatchInfo) { i.LeaderEpoch-- }},
		{"length", func(i *storage.BatchInfo) { i.Bytes++ }},
		{"attributes", func(i *storage.BatchInfo) { i.Attributes ^= recordbatch.AttrControl }},
		{"base timestamp", func(i *storage.BatchInfo) { i.BaseTimestamp++ }},
		{"max timestamp", func(i *storage.BatchInfo) { i.MaxTimestamp++ }},
		{"producer ID", func(i *storage.BatchInfo) { i.ProducerID++ }},
		{"producer epoch", func(i *storage.BatchInfo) { i.ProducerEpoch++ }},
		{"base sequence", func(i *storage.BatchInfo) { i.BaseSequence++ }},
		{"record count", func(i *storage.BatchInfo) { i.Records++ }},
	} {
		for n := range good {
			req := request(r.Handle, 1, leo, good...)
			lie.tell(&req.Batches[n])
			e.refuse(fmt.Sprintf("append with a wrong %s of batch %d", lie.name, n), req)
		}
	}
	req := request(r.Handle, 1, leo, good...)
	req.Batches = req.Batches[:1]
	e.refuse("append two batches described as one", req)
	req = request(r.Handle, 1, leo, good[0])
	req.Batches = append(req.Batches, good[1].BatchInfo)
	e.refuse("append one batch described as two", req)
	req = request(r.Handle, 1, leo, good...)
	slices.Reverse(req.Batches)
	e.refuse("append two batches described in the other order", req)
	req = request(r.Handle, 1, leo, good...)
	req.Batches = nil
	e.refuse("append batches that nothing describes", req)
	e.checkLog(r.Handle, "after misdescribed appends", 0, leo, b)
	e.append(r.Handle, leo, good...)
}

func appendEpochOrder(e *env) {
	r := e.logAt(0, 3)
	b := e.fill(r.Handle, 0, 2, 3)
	leo := endOf(b, 0)
	e.refuse("append a batch of a lower epoch than the log's last", request(r.Handle, 3, leo, e.batch(leo, 1, 2)))
	e.refuse("append a batch of a higher epoch than the request's", request(r.Handle, 3, leo, e.batch(leo, 1, 4)))
	e.refuse("append batches whose epochs fall", request(r.Handle, 5, leo, e.batch(leo, 1, 5), e.batch(leo+1, 1, 4)))
	rising := []made{e.batch(leo, 1, 3), e.batch(leo+1, 1, 4), e.batch(leo+2, 1, 6)}
	_, err := e.tryAppend(request(r.Handle, 6, leo, rising...))
	e.must(err, "append batches whose epochs rise")
	e.checkLog(r.Handle, "after appends of several epochs", 0, leo+3, append(b, rising...))
}

func appendRequire(e *env) {
	r := e.log(0)
	most := e.store.Capabilities().Survives
	base, b := int64(0), []made(nil)
	for level := storage.SurvivesUnset; level <= storage.SurvivesStore+1; level++ {
		m := e.batch(base, 2, 1)
		req := request(r.Handle, 1, base, m)
		req.Require = level
		if level > most {
			e.refuse(fmt.Sprintf("append that requires level %d of a store that gives %d", level, most), req)
			continue
		}
		result, err := e.tryAppend(req)
		e.must(err, fmt.Sprintf("append that requires level %d", level))
		if result.Survives < max(level, storage.SurvivesProcess) {
			e.failf("an append that requires level %d is acknowledged as surviving %d", level, result.Survives)
		}
		if result.Survives >= storage.SurvivesMachine && result.Durable < result.LEO {
			e.failf("an append acknowledged at LEO %d as surviving the machine's loss is durable up to %d", result.LEO, result.Durable)
		}
		base, b = m.end(), append(b, m)
	}
	req := request(r.Handle, 1, base, e.batch(base, 1, 1))
	req.Require = -1
	e.refuse("append that requires level -1", req)
	e.checkLog(r.Handle, "after appends of every level", 0, base, b)
}

func appendBytes(e *env) {
	r := e.log(0)
	var b []made
	for range 20 {
		m := e.batch(endOf(b, 0), 2, 1)
		req := request(r.Handle, 1, m.BaseOffset, m)
		infos := slices.Clone(req.Batches)
		_, err := e.tryAppend(req)
		e.must(err, "append")
		if !bytes.Equal(req.Data[0], m.data) || !slices.Equal(req.Batches, infos) {
			e.failf("the store changed the bytes or the description that it was given")
		}
		// They are the caller's again, who uses them for something else.
		for i := range req.Data[0] {
			req.Data[0][i] ^= 0xff
		}
		req.Batches[0] = storage.BatchInfo{}
		b = append(b, m)
	}
	e.checkLog(r.Handle, "after the caller used its bytes again", 0, endOf(b, 0), b)
	e.restart()
	e.checkOpened(e.log(0), "and after a restart", 0, endOf(b, 0), b)
}
