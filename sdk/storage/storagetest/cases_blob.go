package storagetest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/brokerd/brokerd/sdk/storage"
)

func blobCases() []Case {
	return []Case{
		{Name: "blob", About: "a blob is returned as it was put, replaced by the next, and removed by empty data", run: blobs},
		{Name: "blob-limits", About: "names match [a-z][a-z0-9-]{0,31} and data is at most MaxBlobBytes; else ErrInvalid", run: blobLimits},
		{Name: "blob-ahead", About: "a blob that is ahead of the LEO is not returned", run: blobAhead},
		{Name: "blob-truncate", About: "truncation removes the blobs that describe more than the new LEO, for good", run: blobTruncate},
		{Name: "blob-kill", About: "a blob survives a kill once it was put, whole", Needs: Abilities{Kill: true}, run: blobKill},
		{Name: "blob-power", About: "a blob survives loss of power, unless the log lost what it describes: then it is gone for good",
			Needs: Abilities{LosePower: true}, run: blobPower},
	}
}

func (e *env) put(h storage.Handle, name string, offset int64, data []byte) {
	e.must(e.store.PutBlob(e.ctx, h, name, storage.Blob{Offset: offset, Data: data}), "put blob "+name)
}

// wantBlob checks a blob; nil data means that there is none.
func (e *env) wantBlob(h storage.Handle, when, name string, offset int64, data []byte) {
	got, found, err := e.store.GetBlob(e.ctx, h, name)
	e.must(err, "get blob "+name)
	if found != (data != nil) {
		e.failf("%s: blob %s is found: %v; want %v", when, name, found, data != nil)
	}
	if found && (got.Offset != offset || !bytes.Equal(got.Data, data)) {
		e.failf("%s: blob %s is %d bytes at offset %d; want %d bytes at %d, as they were put", when, name, len(got.Data), got.Offset, len(data), offset)
	}
}

func blobs(e *env) {
	r, other := e.log(0), e.log(1)
	leo := endOf(e.fill(r.Handle, 0, 5, 1), 0)
	e.wantBlob(r.Handle, "never put", "state", 0, nil)
	want := map[string][]byte{}
	for i := range 30 {
		name := fmt.Sprintf("state-%d", i%7)
		data := randomBytes(e.rng, 1+e.rng.IntN(5000))
		e.put(r.Handle, name, leo, data)
		want[name] = data
		if i%5 == 4 {
			e.put(r.Handle, name, leo, nil)
			want[name] = nil
		}
	}
	e.put(r.Handle, "never-was", leo, nil)
	check := func(when string) {
		for i := range 7 {
			name := fmt.Sprintf("state-%d", i)
			e.wantBlob(r.Handle, when, name, leo, want[name])
			e.wantBlob(other.Handle, when+", of another log", name, 0, nil)
		}
	}
	check("as put")
	e.restart()
	r, other = e.log(0), e.log(1)
	check("after a restart")
}

func blobLimits(e *env) {
	r := e.log(0)
	long := "a" + strings.Repeat("b", 31)
	for _, name := range []string{"a", "a0", "z-9-", long} {
		e.put(r.Handle, name, 0, []byte(name))
	}
	for _, name := range []string{"a", "a0", "z-9-", long} {
		e.wantBlob(r.Handle, "with a good name", name, 0, []byte(name))
	}
	for _, name := range []string{"", "A", "aB", "0a", "-a", "a_b", "a.b", "a/b", "..", "../a", "a\x00", "ä", long + "b", strings.Repeat("x", 5000)} {
		err := e.store.PutBlob(e.ctx, r.Handle, name, storage.Blob{Data: []byte("x")})
		e.wantClass(err, fmt.Sprintf("put a blob named %.40q", name), storage.ErrInvalid)
		if _, found, err := e.store.GetBlob(e.ctx, r.Handle, name); found {
			e.failf("a blob named %.40q is found (%v)", name, err)
		}
	}
	large := randomBytes(e.rng, 1<<20)
	e.put(r.Handle, "large", 0, large)
	e.wantBlob(r.Handle, "of a megabyte", "large", 0, large)
	err := e.store.PutBlob(e.ctx, r.Handle, "large", storage.Blob{Data: make([]byte, storage.MaxBlobBytes+1)})
	e.wantClass(err, "put a blob of a byte more than fits", storage.ErrInvalid)
	e.wantBlob(r.Handle, "after one that was too large", "large", 0, large)
}

func blobAhead(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 5, 1)
	leo := endOf(b, 0)
	e.put(r.Handle, "at-end", leo, []byte("at the end"))
	e.put(r.Handle, "below", 1, []byte("below"))
	err := e.store.PutBlob(e.ctx, r.Handle, "ahead", storage.Blob{Offset: leo + 1, Data: []byte("ahead")})
	if err != nil {
		e.wantClass(err, "put a blob that is ahead of the log", storage.ErrInvalid)
	}
	check := func(when string) {
		e.wantBlob(r.Handle, when, "ahead", 0, nil)
		e.wantBlob(r.Handle, when, "at-end", leo, []byte("at the end"))
		e.wantBlob(r.Handle, when, "below", 1, []byte("below"))
	}
	check("beside a log that ends before it")
	e.restart()
	r = e.log(0)
	check("after a restart")
	e.fill(r.Handle, leo, 5, 1)
	e.wantBlob(r.Handle, "a restart after it was ahead, and the log longer", "ahead", 0, nil)
}

func blobTruncate(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 10, 1)
	leo := endOf(b, 0)
	cut := b[5].BaseOffset
	e.put(r.Handle, "below", cut, []byte("below"))
	e.put(r.Handle, "above", cut+1, []byte("above"))
	e.put(r.Handle, "at-end", leo, []byte("at the end"))
	kept, _ := e.truncate(r.Handle, 1, b, 0, cut)
	check := func(when string) {
		e.wantBlob(r.Handle, when, "below", cut, []byte("below"))
		e.wantBlob(r.Handle, when, "above", 0, nil)
		e.wantBlob(r.Handle, when, "at-end", 0, nil)
	}
	check("truncated")
	e.fill(r.Handle, endOf(kept, 0), 20, 2)
	check("truncated and grown again")
	e.restart()
	r = e.logAt(0, 2)
	check("truncated, grown again, and after a restart")
}

func blobKill(e *env) {
	r := e.log(0)
	leo := endOf(e.fill(r.Handle, 0, 5, 1), 0)
	var last []byte
	for i := range 6 {
		for range i + 1 {
			last = randomBytes(e.rng, 1+e.rng.IntN(100_000))
			e.put(r.Handle, "state", leo, last)
		}
		if i == 3 {
			e.put(r.Handle, "state", leo, nil)
			last = nil
		}
		e.kill()
		r = e.log(0)
		e.wantBlob(r.Handle, "after a kill", "state", leo, last)
	}
}

func blobPower(e *env) {
	const logs = 20
	var held [logs][]made
	for i := range logs {
		r := e.log(i)
		b := e.fill(r.Handle, 0, 5, 1)
		e.must(e.store.Flush(e.ctx, []storage.Handle{r.Handle})[0].Err, "flush")
		e.put(r.Handle, "durable", endOf(b, 0), []byte("durable"))
		held[i] = append(b, e.fill(r.Handle, endOf(b, 0), 5, 1)...)
		e.put(r.Handle, "at-end", endOf(held[i], 0), []byte("at the end"))
	}
	e.losePower()
	for i := range logs {
		r := e.logAt(i, 2)
		leo := endOf(held[i], 0)
		e.wantBlob(r.Handle, "after power loss", "durable", held[i][4].end(), []byte("durable"))
		if r.LEO == leo {
			e.wantBlob(r.Handle, "after power loss that cost nothing", "at-end", leo, []byte("at the end"))
			continue
		}
		e.wantBlob(r.Handle, "after power loss", "at-end", 0, nil)
		e.fill(r.Handle, r.LEO, 20, 2)
		e.wantBlob(r.Handle, "after power loss, and other records", "at-end", 0, nil)
	}
}
