package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// FR-14: while the log is read nobody hears that a group has committed nothing.
func TestNoOffsetBeforeAllIsRead(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	for i := range 20 {
		s.mustCommit(fmt.Sprint("group-", i), int64(100+i))
	}
	s.restart(func(c *Config) { c.ChunkBytes = 1 }) // a batch at a time
	loading := 0
	for len(s.others) > 0 || s.Loops()[0].Pending() > 0 {
		got, err := s.fetch("group-0") // it was in the first batch
		if err == nil {
			if got != 100 {
				t.Fatalf("committed %d, want 100", got)
			}
			break
		}
		if !errors.Is(err, model.ErrCoordinatorLoading) {
			t.Fatal(err)
		}
		loading++
		work := s.others[0]
		s.others = s.others[1:]
		work(t.Context())
	}
	if loading < 20 {
		t.Errorf("%d answers while it was loading: too few to have looked", loading)
	}
	for i := range 20 {
		s.mustHave(fmt.Sprint("group-", i), int64(100+i))
	}
}

// What is not committed when a broker begins to lead was written before, and may be
// known to a client: it is waited for.
func TestLoadWaitsForTheHighWatermark(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 1)
	s.mustCommit("g", 2)
	p := s.log.part(0)
	p.hw = p.leo - 1
	s.restart(nil)
	s.advance(time.Second)
	if _, err := s.fetch("g"); !errors.Is(err, model.ErrCoordinatorLoading) {
		t.Fatalf("answered with %v before the high watermark was there", err)
	}
	p.hw = p.leo
	s.advance(loadAgain)
	s.mustHave("g", 2)
}

func TestLoadBeginsAtTheLogStart(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 1)
	s.mustCommit("g", 2)
	p := s.log.part(0)
	p.batches, p.start = p.batches[1:], 1
	s.restart(nil)
	s.turn()
	s.mustHave("g", 2)
	s.commit("gone", 3)
	s.commit("stays", 4)
	s.turn()
	p.start = p.leo - 1 // in the midst of the batch of both
	s.restart(nil)
	s.turn()
	s.mustHave("gone", -1)
	s.mustHave("stays", 4)
	p.batches, p.start = nil, p.leo
	s.restart(nil)
	s.turn()
	s.mustHave("stays", -1)
}

func TestFailedLoadIsTriedAgain(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 7)
	s.log.fail = fmt.Errorf("the disk is away: %w", model.ErrStorage)
	s.restart(nil)
	s.advance(time.Minute)
	if _, err := s.fetch("g"); !errors.Is(err, model.ErrCoordinatorLoading) {
		t.Fatalf("answered with %v", err)
	}
	failed := s.events.get(&s.events.failedLoads)
	lines := strings.Count(s.lines.String(), "load groups; it is tried again")
	if failed < 3 || lines < 1 || lines > 7 {
		t.Errorf("%d loads failed, %d were logged", failed, lines)
	}
	s.log.fail = nil
	s.advance(time.Minute)
	s.mustHave("g", 7)
	if s.events.get(&s.events.refused) > 0 {
		t.Error("a failed load was counted as a refused write")
	}
}

// Records that cannot be read take nobody else's groups with them.
func TestUnreadableBatchesArePassedOver(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("before", 1)
	junk := func(opts batch.Options, r batch.Record) []byte {
		data, err := batch.Build(opts, r)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	key := s.log.records(t, 0)[0].Key
	s.log.put(0, junk(batch.Options{Attributes: recordbatch.AttrControl}, batch.Record{Key: key}), true) // not a tombstone
	s.log.put(0, junk(batch.Options{}, batch.Record{Key: []byte{0, 99}, Value: []byte("x")}), true)
	torn := junk(batch.Options{Codec: batch.Gzip}, batch.Record{Key: key})
	torn[len(torn)-1] ^= 1 // its records cannot be decompressed, whatever the CRC says
	s.log.put(0, torn, true)
	s.mustCommit("after", 2)
	s.restart(nil)
	s.turn()
	s.mustHave("before", 1)
	s.mustHave("after", 2)
	if !strings.Contains(s.lines.String(), "passed over") {
		t.Errorf("nobody was told:\n%s", s.lines)
	}
}

func TestManyUnreadableBatchesAreToldOfBriefly(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 1)
	for range 3 * passedTold {
		data, err := batch.Build(batch.Options{}, batch.Record{Value: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)-1] ^= 1
		s.log.put(0, data, true)
	}
	s.restart(nil)
	s.turn()
	s.mustHave("g", 1)
	lines := s.lines.String()
	if n := strings.Count(lines, "cannot be read"); n != passedTold || !strings.Contains(lines, fmt.Sprint("passed_over=", 3*passedTold)) {
		t.Errorf("told %d times:\n%s", n, lines)
	}
}

// Damage takes no group with it whose records are whole, wherever it lies.
func TestDamagedRangesArePassedOver(t *testing.T) {
	const groups = 40
	for _, tc := range []struct{ from, to int64 }{{0, 0}, {0, 5}, {7, 7}, {7, 29}, {39, 39}, {20, 39}, {0, 39}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			s := newStepped(t, 1, nil)
			s.turn()
			for i := range groups {
				s.mustCommit(fmt.Sprint("group-", i), int64(i))
			}
			s.log.damaged = func(offset int64) bool { return offset >= tc.from && offset <= tc.to }
			s.log.reads = 0
			s.restart(nil)
			s.turn()
			for i := range int64(groups) {
				want := i
				if s.log.damaged(i) {
					want = -1
				}
				s.mustHave(fmt.Sprint("group-", i), want)
			}
			if s.log.reads > 20 {
				t.Errorf("%d reads", s.log.reads)
			}
			if want := fmt.Sprintf("offsets %d to %d", tc.from, tc.to); strings.Count(s.lines.String(), want) != 1 {
				t.Errorf("not told of %s:\n%s", want, s.lines)
			}
		})
	}
}

func TestCompressedLogsAreReadAndWritten(t *testing.T) {
	for _, codec := range []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			s := newStepped(t, 1, func(c *Config) { c.Codec = codec })
			s.turn()
			s.mustCommit("g", 5)
			if got := batch.Codec(s.log.appends[0].Batch.Attributes & recordbatch.CodecMask); got != codec {
				t.Errorf("written with %s", got)
			}
			s.restart(nil)
			s.turn()
			s.mustHave("g", 5)
		})
	}
}

func TestFewPartitionsAreReadAtOnce(t *testing.T) {
	s := newStepped(t, 50, nil)
	s.turn()
	for i := range 200 {
		s.mustCommit(fmt.Sprint("group-", i), int64(i))
	}
	s.most = 0
	s.restart(func(c *Config) { c.ChunkBytes = 1 })
	s.turn()
	if s.most > loadsMax {
		t.Errorf("%d reads at once, at most %d", s.most, loadsMax)
	}
	for i := range 200 {
		s.mustHave(fmt.Sprint("group-", i), int64(i))
	}
}

// Offsets of topics that were deleted while nobody coordinated go, but not at once:
// the metadata here may be behind.
func TestOffsetsOfTopicsThatAreGone(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 5)
	s.cluster.apply(&image.TopicRemovalRecord{ID: ordersID})
	s.restart(nil)
	s.advance(goneAfter - time.Second)
	s.mustHave("g", 5)
	s.advance(2 * time.Second)
	s.mustHave("g", -1)
}

func TestOffsetsOfTopicsThatComeAfterTheLoadStay(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 5)
	without := newCluster(t, topicRecords(offsetsID, model.OffsetsTopic, 1)...)
	with := s.cluster
	s.cluster = without
	s.restart(nil)
	s.turn()
	s.Apply(with.img)
	s.advance(2 * goneAfter)
	s.mustHave("g", 5)
}

func TestDeletedTopics(t *testing.T) {
	for _, when := range []string{"served", "while it is loaded", "made again"} {
		t.Run(when, func(t *testing.T) {
			s := newStepped(t, 1, nil)
			s.turn()
			s.mustCommit("g", 5)
			if when == "while it is loaded" {
				s.restart(nil)
			}
			s.Apply(s.cluster.apply(&image.TopicRemovalRecord{ID: ordersID}))
			if when == "made again" {
				s.Apply(s.cluster.apply(topicRecords(model.TopicID{0x71}, ordersName, 1)...))
			}
			s.turn()
			s.mustHave("g", -1)
			s.restart(nil)
			s.turn()
			s.mustHave("g", -1)
		})
	}
}

// FuzzDecode: whatever a log yields, decoding goes forward or says that it cannot.
func FuzzDecode(f *testing.F) {
	for _, codec := range []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd} {
		data, err := batch.Build(batch.Options{Codec: codec}, batch.Record{Key: []byte{0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 0}, Value: []byte{0, 3}}, batch.Record{Key: []byte{0, 2}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(append(data, data[:20]...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &chunk{}
		c.decode(data)
		if c.err == nil && len(data) > 0 && c.next == 0 {
			t.Errorf("%d bytes lead nowhere", len(data))
		}
		if len(c.topics) > len(c.records) {
			t.Errorf("%d topics in %d records", len(c.topics), len(c.records))
		}
	})
}
