package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// TestGroupsKeepToTheirMemory: many clients, each with a group of its own and a megabyte
// that it offers, come to hold what groups may; who was there before goes on; what the
// log has is loaded when the broker starts again; and nothing is left when it stops.
func TestGroupsKeepToTheirMemory(t *testing.T) {
	const limit, metadata = 16 << 20, 1 << 20
	kept, writing := memory.NewTally(limit), memory.NewTally(limit)
	s := newStepped(t, 4, nil)
	s.mem = group.Memory{Kept: kept, Writes: writing}
	s.restart(nil)
	s.turn()
	commit := model.CommitOffsets{Group: "worker", Generation: -1, Retention: -1, Offsets: []model.GroupOffset{
		{TopicPartition: model.TopicPartition{Topic: ordersName}, Offset: 5}}}
	committed := func() error {
		err := errors.New("nothing was answered")
		s.Commit(t.Context(), commit, func(a model.CommittedOffsets) { err = errors.Join(a.Err, errors.Join(a.Offsets...)) })
		s.turn()
		return err
	}
	if err := committed(); err != nil {
		t.Fatal(err)
	}
	taken := 0
	for i := range 400 {
		q := model.JoinGroup{Group: fmt.Sprint("attack-", i), ProtocolType: "consumer", SessionTimeout: 10 * time.Minute, RebalanceTimeout: 10 * time.Minute,
			Protocols: []model.GroupProtocol{{Name: "range", Metadata: make([]byte, metadata)}}}
		var joined *model.JoinedGroup
		s.Join(t.Context(), q, func(a model.JoinedGroup) { joined = &a })
		s.turn()
		switch {
		case joined == nil:
			t.Fatalf("join %d is not answered", i)
		case joined.Err == nil:
			taken++
		case !errors.Is(joined.Err, model.ErrCoordinatorNotAvailable) || !strings.Contains(joined.Err.Error(), "`memory`"):
			t.Fatalf("join %d: %v", i, joined.Err)
		}
		if used, total := s.Memory(); used > total || total != limit {
			t.Fatalf("%d bytes of %d", used, total)
		}
	}
	if taken < limit/metadata/2 || s.events.get(&s.events.full) != 400-taken {
		t.Errorf("%d members were taken in, %d requests counted as refused", taken, s.events.get(&s.events.full))
	}
	if n := strings.Count(s.lines.String(), "groups have no memory"); n != 1 {
		t.Errorf("that is logged %d times", n)
	}
	if err := committed(); err != nil {
		t.Errorf("a commit that adds nothing: %v", err)
	}
	s.Stop()
	s.turn()
	if kept.Used() != 0 || writing.Used() != 0 {
		t.Errorf("%d and %d bytes are left", kept.Used(), writing.Used())
	}
	kept = memory.NewTally(0)
	s.mem.Kept = kept
	s.restart(nil)
	s.turn()
	if kept.Used() == 0 {
		t.Error("what is loaded is not counted")
	}
	if err := committed(); err != nil {
		t.Errorf("a commit that adds nothing, after the load: %v", err)
	}
}

// TestPiecesOfALogAreSmall: what is decompressed at once is bounded, and all of it is read.
func TestPiecesOfALogAreSmall(t *testing.T) {
	const batches = 10
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 5)
	var all []byte
	for i := range batches {
		one, err := batch.Build(batch.Options{Codec: batch.Zstd}, batch.Record{Key: []byte{0, 9}, Value: make([]byte, 1<<20)})
		if err != nil {
			t.Fatal(err)
		}
		s.log.put(0, one, true)
		again := slices.Clone(one)
		recordbatch.Stamp(again, int64(i), 0)
		all = append(all, again...)
	}
	s.mustCommit("g", 6)
	c := &chunk{}
	c.decode(all)
	if n := len(c.records); c.err != nil || n >= batches || c.next != int64(n) || c.bytes > chunkBytesMax+1<<20+chunkRecordBytes {
		t.Errorf("%d records, %d bytes, next offset %d: %v", n, c.bytes, c.next, c.err)
	}
	s.restart(nil)
	s.turn()
	s.mustHave("g", 6)
}
