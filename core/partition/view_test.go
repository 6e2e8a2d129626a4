package partition

import (
	"errors"
	"testing"

	"github.com/brokerd/brokerd/core/model"
)

// Where the current epoch ends is not known while the log is opened again: the store
// may have taken more than was acknowledged. What earlier epochs hold does not change.
func TestEpochEndWhileReopened(t *testing.T) {
	epochs := &epochCache{starts: []EpochStart{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 10}}}
	for _, tc := range []struct {
		status Status
		asked  model.LeaderEpoch
		want   model.EpochEnd
		err    error
	}{
		{StatusServing, 3, model.EpochEnd{Epoch: 3, EndOffset: 15}, nil},
		{StatusServing, 1, model.EpochEnd{Epoch: 1, EndOffset: 10}, nil},
		{StatusReopened, 1, model.EpochEnd{Epoch: 1, EndOffset: 10}, nil},
		{StatusReopened, 3, model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1}, model.ErrOffsetNotAvailable},
		{StatusReopened, 4, model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1}, model.ErrOffsetNotAvailable},
	} {
		v := View{Status: tc.status, Epoch: 4, LEO: 15, epochs: epochs}
		if got, err := v.EpochEnd(4, tc.asked); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("status %d, epoch %d: %+v, %v", tc.status, tc.asked, got, err)
		}
	}
}

// A log's end is told where it is open, by whoever leads or follows, and nowhere else.
func TestLogEnd(t *testing.T) {
	epochs := &epochCache{starts: []EpochStart{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 10}}}
	for _, tc := range []struct {
		status   Status
		readable bool
		open     bool
		want     bool
	}{
		{StatusServing, false, true, true},
		{StatusFollowing, true, true, true},
		{StatusFollowing, true, false, false}, // it is opened again, and may be shorter
		{StatusFollowing, false, true, false},
		{StatusReopened, true, false, false},
		{StatusOpening, true, false, false},
		{StatusOffline, true, false, false},
		{StatusNone, true, false, false},
	} {
		v := View{Status: tc.status, Epoch: 4, LEO: 15, epochs: epochs, under: 7, readable: tc.readable, open: tc.open}
		end, ok := v.LogEnd()
		if ok != tc.want || ok && end != (model.LogEnd{PartitionEpoch: 7, LastEpoch: 3, LEO: 15}) {
			t.Errorf("status %d, readable %v, open %v: %+v, %v", tc.status, tc.readable, tc.open, end, ok)
		}
	}
}

// A follower serves consumers where its log is open, and to one who is ahead of it says
// that it has not got that yet, which is no reason to give up the place. (KIP-392)
func TestFollowerServesReads(t *testing.T) {
	for _, tc := range []struct {
		status         Status
		readable, open bool
		serves         bool
	}{
		{StatusServing, false, true, true},
		{StatusFollowing, true, true, true},
		{StatusFollowing, true, false, false},
		{StatusFollowing, false, true, false},
		{StatusOffline, true, true, false},
	} {
		v := View{Status: tc.status, Follows: tc.status == StatusFollowing, readable: tc.readable, open: tc.open}
		if err := v.ServingReads(); (err == nil) != tc.serves || v.Open() != tc.serves {
			t.Errorf("status %d, readable %v, open %v: %v, %v", tc.status, tc.readable, tc.open, err, v.Open())
		}
	}
	for _, tc := range []struct {
		follows bool
		offset  int64
		err     error
	}{
		{true, 4, model.ErrOffsetOutOfRange},
		{true, 5, nil},
		{true, 15, nil},
		{true, 16, model.ErrOffsetNotAvailable},
		{true, 17, model.ErrOffsetNotAvailable},
		{true, 18, model.ErrOffsetOutOfRange},
		{false, 16, model.ErrOffsetOutOfRange},
	} {
		v := View{Follows: tc.follows, Epoch: 4, LogStart: 5, HighWater: 10, LEO: 15, known: 17}
		if _, err := v.CheckFetch(tc.offset, 4, model.NoEpoch); !errors.Is(err, tc.err) {
			t.Errorf("follows %v, offset %d: %v, want %v", tc.follows, tc.offset, err, tc.err)
		}
	}
}
