package storagetest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/sdk/storage"
)

func partsCases() []Case {
	return []Case{
		{Name: "append-parts", About: "Data may be in elements of one or more batches each, and is stored as if it were in one", run: appendParts},
		{Name: "append-parts-refused", About: "what is wrong with any element makes the append ErrInvalid, and nothing of it is stored", run: appendPartsRefused},
		{Name: "append-checked", About: "an append whose CRCs the caller has checked is stored like any other, and refused for all else", run: appendChecked},
		{Name: "read-buf", About: "a read uses the room that it is given from its start on, or passes it over, and keeps nothing of it", run: readBuf},
		{Name: "read-buf-apart", About: "bytes that one read returned change neither with another read nor with its room", run: readBufApart},
	}
}

// inParts returns the bytes of batches in as many elements as counts has, each
// with so many of the batches.
func inParts(batches []made, counts ...int) [][]byte {
	var data [][]byte
	for _, n := range counts {
		_, part := join(batches[:n])
		data, batches = append(data, part), batches[n:]
	}
	return data
}

// randomParts divides batches among elements as the seed decides.
func (e *env) randomParts(batches []made) [][]byte {
	var counts []int
	for left := len(batches); left > 0; {
		n := 1 + e.rng.IntN(left)
		counts, left = append(counts, n), left-n
	}
	return inParts(batches, counts...)
}

func appendParts(e *env) {
	r := e.log(0)
	var b []made
	add := func(list []made, data [][]byte) {
		req := request(r.Handle, 1, list[0].BaseOffset, list...)
		req.Data = data
		sent := make([][]byte, len(data))
		for i := range data {
			sent[i] = bytes.Clone(data[i])
		}
		result, err := e.tryAppend(req)
		e.must(err, fmt.Sprintf("append %d batches in %d parts", len(list), len(data)))
		if result.LEO != endOf(list, 0) {
			e.failf("append %d batches in %d parts: acknowledged with LEO %d, want %d", len(list), len(data), result.LEO, endOf(list, 0))
		}
		if !slices.EqualFunc(req.Data, sent, bytes.Equal) {
			e.failf("the store changed the parts that it was given")
		}
		b = append(b, list...)
	}
	for n := 1; n <= 10; n++ {
		list := e.batches(endOf(b, 0), n, 1)
		add(list, e.randomParts(list))
	}
	many := e.batches(endOf(b, 0), 500, 1)
	one := slices.Repeat([]int{1}, len(many))
	add(many, inParts(many, one...))
	large := []made{
		e.batch(endOf(b, 0), 2, 1),
		makeBatch(e.rng, endOf(b, 0)+2, 4, 1, e.start.UnixMilli(), 1<<20),
		makeBatch(e.rng, endOf(b, 0)+6, 4, 1, e.start.UnixMilli(), 300<<10),
		e.batch(endOf(b, 0)+10, 1, 1),
	}
	add(large, inParts(large, 1, 1, 2))
	e.checkLog(r.Handle, "after appends in parts", 0, endOf(b, 0), b)

	again := request(r.Handle, 1, many[100].BaseOffset, many[100:200]...)
	again.Data = e.randomParts(many[100:200])
	_, err := e.tryAppend(again)
	e.must(err, "repeat an append in other parts")
	e.restart()
	e.checkOpened(e.log(0), "appended in parts, after a restart", 0, endOf(b, 0), b)
}

func appendPartsRefused(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 3, 1)
	leo := endOf(b, 0)
	list := e.batches(leo, 6, 1)
	for _, spoil := range []struct {
		what   string
		change func(data [][]byte) [][]byte
	}{
		{"without the first part", func(data [][]byte) [][]byte { return data[1:] }},
		{"without the last part", func(data [][]byte) [][]byte { return data[:2] }},
		{"with a part twice", func(data [][]byte) [][]byte { return append(data, data[2]) }},
		{"with parts in another order", func(data [][]byte) [][]byte { slices.Reverse(data); return data }},
		{"with a part that is cut short", func(data [][]byte) [][]byte { data[1] = data[1][:len(data[1])-1]; return data }},
		{"with a part that is damaged", func(data [][]byte) [][]byte { data[1][len(data[1])-1] ^= 1; return data }},
		{"with a last part that is damaged", func(data [][]byte) [][]byte { data[2][len(data[2])-1] ^= 1; return data }},
		{"without any part", func([][]byte) [][]byte { return nil }},
	} {
		req := request(r.Handle, 1, leo, list...)
		req.Data = spoil.change(inParts(list, 1, 3, 2))
		e.refuse("append in parts, "+spoil.what, req)
	}
	e.checkLog(r.Handle, "after appends in parts that were refused", 0, leo, b)
	e.append(r.Handle, leo, list...)
	e.checkLog(r.Handle, "and appended", 0, endOf(list, 0), append(b, list...))
}

func appendChecked(e *env) {
	r := e.logAt(0, 3)
	var b []made
	for n := 1; n <= 8; n++ {
		list := e.batches(endOf(b, 0), n, 3)
		req := request(r.Handle, 3, endOf(b, 0), list...)
		req.Checked, req.Data = true, e.randomParts(list)
		result, err := e.tryAppend(req)
		e.must(err, "append what was checked")
		if b = append(b, list...); result.LEO != endOf(b, 0) {
			e.failf("append what was checked: acknowledged with LEO %d, want %d", result.LEO, endOf(b, 0))
		}
	}
	leo := endOf(b, 0)
	for what, req := range map[string]storage.AppendRequest{
		"above the LEO":     request(r.Handle, 3, leo+1, e.batch(leo+1, 1, 3)),
		"at taken offsets":  request(r.Handle, 3, b[2].BaseOffset, e.batch(b[2].BaseOffset, 1, 3)),
		"of a fallen epoch": request(r.Handle, 3, leo, e.batch(leo, 1, 2)),
		"misdescribed":      {Handle: r.Handle, LeaderEpoch: 3, BaseOffset: leo, Batches: []storage.BatchInfo{b[0].BatchInfo}, Data: [][]byte{e.batch(leo, 1, 3).data}},
	} {
		req.Checked = true
		e.refuse("append what was checked, "+what, req)
	}
	e.checkLog(r.Handle, "after appends that were checked", 0, leo, b)
	e.restart()
	e.checkOpened(e.logAt(0, 3), "appended as checked, after a restart", 0, leo, b)
}

// guardBytes are on both sides of the room of a read, and nobody's but the kit's.
const guardBytes = 64

func readBuf(e *env) {
	h, b := e.gappy()
	leo := endOf(b, 0)
	for _, size := range []int{0, 1, 60, 61, 200, 700, 4096, 32 << 10} {
		for _, most := range []int{1, 100, 700, 5000, 1 << 20} {
			area := bytes.Repeat([]byte{0xa5}, size+2*guardBytes)
			room := area[guardBytes : guardBytes+size : guardBytes+size]
			req := storage.ReadRequest{Handle: h, Offset: e.rng.Int64N(leo), UpTo: leo, MaxBytes: most, AtLeastOne: true, Buf: room}
			got, err := e.store.Read(e.ctx, req)
			act := fmt.Sprintf("read %d bytes at %d into room for %d", most, req.Offset, size)
			e.must(err, act)
			e.must(checkRead(b, req, got), act)
			guard := bytes.Repeat([]byte{0xa5}, guardBytes)
			if !bytes.Equal(area[:guardBytes], guard) || !bytes.Equal(area[guardBytes+size:], guard) {
				e.failf("%s: bytes beside the room changed", act)
			}
			// The room is the caller's again, and with it what lies in it.
			kept := bytes.Clone(got.Data)
			for i := range room {
				room[i] = byte(i * 31)
			}
			if !bytes.Equal(got.Data, kept) && (len(kept) > size || !bytes.Equal(got.Data, room[:len(kept)])) {
				e.failf("%s: the bytes returned lie in the room, and not from its start on", act)
			}
		}
	}
	e.checkLog(h, "after the rooms of reads were used for something else", 0, leo, b)
}

func readBufApart(e *env) {
	h, b := e.gappy()
	leo := endOf(b, 0)
	type held struct{ data, want []byte }
	var reads []held
	shared := make([]byte, 8<<10)
	for i := range 60 {
		req := storage.ReadRequest{Handle: h, Offset: e.rng.Int64N(leo), UpTo: leo, MaxBytes: 1500, AtLeastOne: true}
		switch i % 3 {
		case 0:
			req.Buf = make([]byte, 4<<10)
		case 1:
			req.Buf = shared // whose earlier content nobody looks at any more
		}
		got, err := e.store.Read(e.ctx, req)
		e.must(err, "read")
		e.must(checkRead(b, req, got), "read")
		if i%3 != 1 {
			reads = append(reads, held{got.Data, bytes.Clone(got.Data)})
		}
		for i := range shared {
			shared[i] ^= 0xff
		}
	}
	for _, r := range reads {
		if !bytes.Equal(r.data, r.want) {
			e.failf("bytes that a read had returned changed with the reads after it: they are %s, and were %s", describe(r.data), describe(r.want))
		}
	}
}
