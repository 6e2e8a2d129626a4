package plugin

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/sdk/storage"
)

// drawRequest draws any request.
func drawRequest(t *rapid.T) request {
	r := request{head: head{
		kind:    rapid.SampledFrom([]byte{kindAppend, kindRead, kindReplace, kindTold, kindGrant, kindEnd, kindLease, kindReturn, kindLock}).Draw(t, "kind"),
		timeout: time.Duration(rapid.Uint32().Draw(t, "ms")) * time.Millisecond,
		seq:     rapid.Uint64().Draw(t, "seq"),
		handle:  storage.Handle(rapid.Uint64().Draw(t, "handle")),
	}}
	infos := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) storage.BatchInfo {
		return storage.BatchInfo{
			BaseOffset: rapid.Int64().Draw(t, "base"), LastOffset: rapid.Int64().Draw(t, "last"),
			LeaderEpoch: rapid.Int32().Draw(t, "epoch"), Bytes: rapid.Int32().Draw(t, "bytes"),
			Attributes:    rapid.Int16().Draw(t, "attributes"),
			BaseTimestamp: rapid.Int64().Draw(t, "basets"), MaxTimestamp: rapid.Int64().Draw(t, "maxts"),
			ProducerID: rapid.Int64().Draw(t, "pid"), ProducerEpoch: rapid.Int16().Draw(t, "pepoch"),
			BaseSequence: rapid.Int32().Draw(t, "bseq"), Records: rapid.Int32().Draw(t, "records"),
		}
	}), 0, 4)
	data := rapid.SliceOfN(rapid.Byte(), 1, 300)
	switch r.kind {
	case kindAppend:
		r.append = storage.AppendRequest{
			Handle: r.handle, LeaderEpoch: rapid.Int32().Draw(t, "epoch"), BaseOffset: rapid.Int64().Draw(t, "base"),
			Batches: infos.Draw(t, "infos"), Data: [][]byte{data.Draw(t, "data")}, Require: storage.Survives(rapid.IntRange(0, 255).Draw(t, "require")),
		}
	case kindRead:
		r.read = storage.ReadRequest{
			Handle: r.handle, Offset: rapid.Int64().Draw(t, "offset"), UpTo: rapid.Int64().Draw(t, "upto"),
			MaxBytes: rapid.IntRange(0, math.MaxInt32).Draw(t, "max"), AtLeastOne: rapid.Bool().Draw(t, "one"),
		}
	case kindReplace:
		r.replace = storage.ReplaceRequest{
			Handle: r.handle, From: rapid.Int64().Draw(t, "from"), To: rapid.Int64().Draw(t, "to"),
			Batches: infos.Draw(t, "infos"), Data: data.Draw(t, "data"),
		}
	case kindTold:
		r.append = storage.AppendRequest{
			Handle: r.handle, LeaderEpoch: rapid.Int32().Draw(t, "epoch"), BaseOffset: rapid.Int64().Draw(t, "base"),
			Batches: infos.Draw(t, "infos"), Require: storage.Survives(rapid.IntRange(0, 255).Draw(t, "require")),
			Granted: storage.GrantID(rapid.Uint64Min(1).Draw(t, "grant")), Pos: rapid.Int64().Draw(t, "pos"),
		}
	case kindGrant:
		r.grant = grantRequest{epoch: rapid.Int32().Draw(t, "epoch"), require: storage.Survives(rapid.IntRange(0, 255).Draw(t, "require"))}
	case kindEnd:
		r.end = storage.GrantID(rapid.Uint64().Draw(t, "grant"))
	case kindLease:
		r.lease = rapid.Int64().Draw(t, "offset")
	case kindReturn:
		r.leases = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) storage.LeaseID { return storage.LeaseID(rapid.Uint64().Draw(t, "lease")) }), 1, 5).Draw(t, "leases")
	}
	return r
}

func packRequest(p *packer, r *request) { p.pack(&requests{{req: *r}}, 0) }

func packAnswer(p *packer, a *answer) { p.pack(&answers{*a}, 0) }

// sameRequest ignores the difference between nothing and a list of nothing.
func sameRequest() cmp.Options {
	return cmp.Options{cmp.AllowUnexported(request{}, head{}, grantRequest{}), cmpopts.EquateEmpty()}
}

func TestRequestsTravel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.SliceOfN(rapid.Custom(drawRequest), 1, 5).Draw(t, "requests")
		var p packer
		for i := range requests {
			packRequest(&p, &requests[i])
		}
		value := p.parts().Materialize()
		if len(value) != p.bytes {
			t.Fatalf("counted %d bytes, made %d", p.bytes, len(value))
		}
		var got []request
		err := splitUnits(value, func(unit []byte) error {
			var r request
			err := parseRequest(unit, &r)
			got = append(got, r)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(requests, got, sameRequest()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestAnswersTravel(t *testing.T) {
	for name, a := range map[string]answer{
		"append": {head: head{kind: kindAppend | kindAnswer, seq: 1, handle: 2}, append: storage.AppendResult{LEO: 7, Survives: storage.SurvivesStore, Durable: 5}},
		"read":   {head: head{kind: kindRead | kindAnswer, seq: 1}, read: storage.ReadResult{Next: 9, Data: bytes.Repeat([]byte("x"), copyBytesMax+1)}},
		"told":   {head: head{kind: kindTold | kindAnswer, seq: 1, handle: 2}, append: storage.AppendResult{LEO: 7, Survives: storage.SurvivesMachine, Durable: 5, GrantOver: true}},
		"grant": {head: head{kind: kindGrant | kindAnswer, seq: 1}, grant: storage.Grant{
			ID: 1, FileID: 9, Pos: 2, Limit: 3, LEO: 4, LeaderEpoch: 5, MaxTimestamp: 6, MaxOffset: 7, EndMark: 8, Gaps: true,
		}},
		"lease": {head: head{kind: kindLease | kindAnswer, seq: 1}, lease: storage.Lease{
			ID: 1, FileID: 2, Pos: 3, Limit: 4, First: 5, End: 6, Gaps: true,
		}},
		"end":     {head: head{kind: kindEnd | kindAnswer}},
		"lock":    {head: head{kind: kindLock | kindAnswer}},
		"replace": {head: head{kind: kindReplace | kindAnswer, seq: math.MaxUint64}},
		"error":   {head: head{kind: kindRead | kindAnswer, seq: 3}, err: storage.Errorf(storage.ErrCorrupt, "batch at 4")},
	} {
		var p packer
		packAnswer(&p, &a)
		err := splitUnits(p.parts().Materialize(), func(unit []byte) error {
			got, err := parseAnswer(unit)
			if err != nil {
				return err
			}
			if got.head != a.head || got.append != a.append || got.grant != a.grant || got.lease != a.lease || got.read.Next != a.read.Next || !bytes.Equal(got.read.Data, a.read.Data) {
				t.Errorf("%s: %+v became %+v", name, a, got)
			}
			if fmt.Sprint(got.err) != fmt.Sprint(a.err) || !errors.Is(got.err, storage.Class(a.err)) {
				t.Errorf("%s: error %v became %v", name, a.err, got.err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnitLayout pins the bytes that are drawn at the message Frame, by hand.
func TestUnitLayout(t *testing.T) {
	r := request{
		head: head{kind: kindAppend, timeout: 1500 * time.Microsecond, seq: 3, handle: 4},
		append: storage.AppendRequest{
			LeaderEpoch: -1, BaseOffset: 6, Require: storage.SurvivesMachine,
			Batches: []storage.BatchInfo{{
				BaseOffset: 6, LastOffset: 7, LeaderEpoch: 8, Bytes: 9, Attributes: 10, BaseTimestamp: 11,
				MaxTimestamp: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: 2,
			}},
			Data: [][]byte{{0xaa, 0xbb}},
		},
	}
	want := "00000067" + "01" + "01" + "0000" + "00000002" + "0000000000000003" + "0000000000000004" +
		"ffffffff" + "0000000000000006" + "02" + "00000001" +
		"0000000000000006" + "0000000000000007" + "00000008" + "00000009" + "000a" + "000000000000000b" +
		"ffffffffffffffff" + "ffffffffffffffff" + "ffff" + "ffffffff" + "00000002" + "aabb"
	var p packer
	packRequest(&p, &r)
	if got := hex.EncodeToString(p.parts().Materialize()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestFileUnitLayout pins those that are about files.
func TestFileUnitLayout(t *testing.T) {
	u4, u8 := func(n int) string { return fmt.Sprintf("%08x", n) }, func(n int) string { return fmt.Sprintf("%016x", n) }
	start := func(length int, kind string) string {
		return u4(length) + "01" + kind + "0000" + u4(0) + u8(3) + u8(4)
	}
	of := func(kind byte) head { return head{kind: kind, seq: 3, handle: 4} }
	info := storage.BatchInfo{BaseOffset: 9, Records: 1}
	for name, c := range map[string]struct {
		units outgoing
		want  string
	}{
		"told": {&requests{{req: request{head: of(kindTold), append: storage.AppendRequest{
			LeaderEpoch: 5, BaseOffset: 6, Require: storage.SurvivesMachine, Granted: 7, Pos: 8, Batches: []storage.BatchInfo{info},
		}}}}, start(24+33+60, "04") + u4(5) + u8(6) + "02" + u8(7) + u8(8) + u4(1) + hex.EncodeToString(appendEach(nil, []storage.BatchInfo{info}))},
		"grant":  {&requests{{req: request{head: of(kindGrant), grant: grantRequest{5, storage.SurvivesProcess}}}}, start(24+5, "05") + u4(5) + "01"},
		"end":    {&requests{{req: request{head: of(kindEnd), end: 5}}}, start(24+8, "06") + u8(5)},
		"lease":  {&requests{{req: request{head: of(kindLease), lease: 5}}}, start(24+8, "07") + u8(5)},
		"return": {&requests{{req: request{head: of(kindReturn), leases: []storage.LeaseID{5, 6}}}}, start(24+4+16, "08") + u4(2) + u8(5) + u8(6)},
		"lock":   {&requests{{req: request{head: of(kindLock)}}}, start(24, "09")},
		"answer to told": {&answers{{head: of(kindTold | kindAnswer), append: storage.AppendResult{
			LEO: 5, Survives: storage.SurvivesProcess, Durable: 6, GrantOver: true,
		}}}, start(24+19, "84") + "00" + u8(5) + "01" + u8(6) + "01"},
		"answer to grant": {&answers{{head: of(kindGrant | kindAnswer), grant: storage.Grant{
			ID: 5, FileID: 13, Pos: 6, Limit: 7, LEO: 8, LeaderEpoch: 9, MaxTimestamp: 10, MaxOffset: 11, EndMark: 12, Gaps: true,
		}}}, start(24+66, "85") + "00" + u8(5) + u8(6) + u8(7) + u8(8) + u4(9) + u8(10) + u8(11) + u4(12) + "01" + u8(13)},
		"answer to lease": {&answers{{head: of(kindLease | kindAnswer), lease: storage.Lease{
			ID: 5, FileID: 6, Pos: 7, Limit: 8, First: 9, End: 10, Gaps: true,
		}}}, start(24+50, "87") + "00" + u8(5) + u8(6) + u8(7) + u8(8) + u8(9) + u8(10) + "01"},
	} {
		out, _ := c.units.encode(0, nil)
		if got := hex.EncodeToString(out); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

// TestGrantWithoutAFile: a plugin that does not know the FileID of its grants sends none,
// and what is too short for one is refused.
func TestGrantWithoutAFile(t *testing.T) {
	grant := storage.Grant{ID: 1, FileID: 9, Pos: 2, Limit: 3, LEO: 4, MaxOffset: 7, Gaps: true}
	var p packer
	packAnswer(&p, &answer{head: head{kind: kindGrant | kindAnswer, seq: 1}, grant: grant})
	whole := p.parts().Materialize()
	for missing := range len(whole) - headBytes {
		got, err := parseAnswer(whole[:len(whole)-missing])
		want := grant
		if missing == fileIDBytes {
			want.FileID = 0
		}
		switch {
		case missing == 0 || missing == fileIDBytes:
			if err != nil || got.grant != want {
				t.Errorf("without the last %d bytes: %+v, %v", missing, got.grant, err)
			}
		case !errors.Is(err, errUnit):
			t.Errorf("without the last %d bytes: %+v, %v", missing, got.grant, err)
		}
	}
}

func FuzzUnits(f *testing.F) {
	var p packer
	packRequest(&p, &request{head: head{kind: kindAppend, seq: 1}, append: storage.AppendRequest{Batches: make([]storage.BatchInfo, 1), Data: [][]byte{[]byte("d")}}})
	packRequest(&p, &request{head: head{kind: kindRead}})
	packRequest(&p, &request{head: head{kind: kindTold}, append: storage.AppendRequest{Granted: 1, Batches: make([]storage.BatchInfo, 1)}})
	packRequest(&p, &request{head: head{kind: kindReturn}, leases: []storage.LeaseID{1, 2}})
	packRequest(&p, &request{head: head{kind: kindGrant}})
	packAnswer(&p, &answer{head: head{kind: kindRead | kindAnswer}, read: storage.ReadResult{Data: []byte("d")}})
	f.Add(p.parts().Materialize())
	f.Add([]byte("\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, value []byte) {
		total := 0
		err := splitUnits(value, func(unit []byte) error {
			total += len(unit)
			var r request
			if err := parseRequest(unit, &r); err == nil {
				var p packer
				packRequest(&p, &r)
				again := p.parts().Materialize()
				again[6], again[7] = unit[6], unit[7] // flags are not kept
				if r.kind == kindRead {
					again, unit = again[:48], unit[:48] // what follows is not kept either
					copy(again[:4], unit[:4])
					if r.read.MaxBytes == math.MaxInt32 {
						return nil
					}
				}
				if !bytes.Equal(again, unit) {
					t.Fatalf("%x became %x", unit, again)
				}
			}
			_, _ = parseAnswer(unit)
			return nil
		})
		if err == nil && total != len(value) {
			t.Fatalf("%d of %d bytes are units", total, len(value))
		}
	})
}

func TestErrorsKeepTheirClass(t *testing.T) {
	for _, class := range []error{storage.ErrRetry, storage.ErrFenced, storage.ErrCorrupt, storage.ErrFull, storage.ErrGone, storage.ErrInvalid, storage.ErrUnknown} {
		for _, err := range []error{storage.Errorf(class, "why"), fmt.Errorf("append: %w: why", class)} {
			got := errorFromProto(errorToProto(err))
			if !errors.Is(got, class) || !strings.Contains(got.Error(), "why") {
				t.Errorf("%v became %v", err, got)
			}
		}
	}
	if got := errorFromProto(errorToProto(errors.New("disk on fire"))); !errors.Is(got, storage.ErrGone) {
		t.Errorf("an error without a class became %v", got)
	}
	if got := errorFromProto(errorToProto(context.DeadlineExceeded)); !errors.Is(got, storage.ErrUnknown) {
		t.Errorf("the end of a context became %v", got)
	}
	if got := errorFromProto(errorToProto(errors.New("\xff"))); !strings.Contains(got.Error(), "\uFFFD") {
		t.Errorf("bytes that are no text became %q", got)
	}
	if got := joinError(99, "new"); !errors.Is(got, storage.ErrGone) {
		t.Errorf("a class of the future became %v", got)
	}
	if errorFromProto(errorToProto(nil)) != nil {
		t.Error("success became an error")
	}
}

// A handle that is replaced while its appends are in flight leaves nothing
// behind once they have completed.
func TestQueueGoesWithItsHandle(t *testing.T) {
	l := newLane(&Counters{})
	var errs []error
	submit := func() *call {
		c := &call{
			req:  request{head: head{kind: kindAppend, handle: 7}},
			done: func(a answer) { errs = append(errs, a.err) },
		}
		if err := l.submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, second := submit(), submit()
	l.forget(7)
	l.complete(answer{head: head{kind: kindAppend | kindAnswer, seq: first.req.seq}})
	if len(l.queues) != 1 {
		t.Errorf("%d queues with an append in flight", len(l.queues))
	}
	l.expire(second, context.Canceled)
	if len(l.queues) != 0 || len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], storage.ErrUnknown) {
		t.Errorf("%d queues and completions %v after the last", len(l.queues), errs)
	}
}
