package plugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// endMarkMax is the most zeros behind each write that a grant may ask for.
const endMarkMax = 64 << 10

// grant is the end of a log, lent, as far as it has been used.
type grant struct {
	storage.Grant
	require  storage.Survives // that it was asked for with
	info     os.FileInfo      // of File
	fd       int              // of File
	pos, leo int64
	endMark  []byte
	parts    [][]byte // of the write under way
	checked  *checked // of the file; nil: not asked for yet
}

// newGrant makes sure that what the plugin lends can be used.
func newGrant(g storage.Grant, require storage.Survives) (*grant, error) {
	info, err := g.File.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("look at a file that was lent: %w", err)
	case !info.Mode().IsRegular() || !mayWrite(g.File):
		return nil, fmt.Errorf("a file was lent for writing that is %v", info.Mode())
	case g.ID == 0 || g.Pos < 0 || g.Limit < g.Pos || g.LEO < 0 || g.EndMark < 0 || g.EndMark > endMarkMax:
		return nil, fmt.Errorf("a grant of bytes %d to %d at offset %d with %d to follow", g.Pos, g.Limit, g.LEO, g.EndMark)
	}
	return &grant{
		Grant: g, require: require, info: info, fd: int(g.File.Fd()), pos: g.Pos, leo: g.LEO, endMark: make([]byte, g.EndMark),
	}, nil
}

// fits says whether an append may be written under the grant: it is at its place,
// is what it says it is, and stays within the limits.
func (g *grant) fits(req *storage.AppendRequest) bool {
	if req.BaseOffset != g.leo || req.LeaderEpoch != g.LeaderEpoch || len(req.Batches) == 0 ||
		req.Require < storage.SurvivesUnset || max(req.Require, storage.SurvivesProcess) < g.require || len(req.Data) >= iovMax {
		return false
	}
	end, bytes := g.leo, int64(0)
	var rest []byte
	part := 0
	for i := range req.Batches {
		for len(rest) == 0 {
			if part == len(req.Data) {
				return false
			}
			rest = req.Data[part]
			part++
		}
		b := &req.Batches[i]
		info, err := recordbatch.Parse(rest)
		if err != nil || info != *b || int(b.Bytes) > len(rest) || !g.takes(b, end) {
			return false
		}
		if !req.Checked && recordbatch.CheckCRC(rest[:b.Bytes]) != nil {
			return false
		}
		rest = rest[b.Bytes:]
		end, bytes = b.LastOffset+1, bytes+int64(b.Bytes)
	}
	return len(rest) == 0 && part == len(req.Data) && bytes+int64(g.EndMark) <= g.Limit-g.pos
}

// takes says whether a batch may follow what ends at offset end.
func (g *grant) takes(b *storage.BatchInfo, end int64) bool {
	return (b.BaseOffset == end || b.BaseOffset > end && g.Gaps) && b.LeaderEpoch == g.LeaderEpoch &&
		b.LastOffset <= g.MaxOffset && b.MaxTimestamp <= g.MaxTimestamp
}

// write writes an append that fits.
func (g *grant) write(req *storage.AppendRequest) error {
	g.parts = append(g.parts[:0], req.Data...)
	if len(g.endMark) > 0 {
		g.parts = append(g.parts, g.endMark)
	}
	bytes := recordbatch.TotalBytes(req.Data)
	n, err := writeVectorsAt(g.fd, g.parts, g.pos)
	clear(g.parts)
	if err == nil && n < bytes+len(g.endMark) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return err
	}
	g.pos += int64(bytes)
	g.leo = req.Batches[len(req.Batches)-1].LastOffset + 1
	return nil
}

// ask asks for a grant, for appends like the last, unless there is one or none is to
// be had. The caller holds mu.
func (l *hostLog) ask(epoch int32, require storage.Survives) {
	if !l.files.offers.Grants || l.grant != nil || l.asking || l.out || l.plain > 0 || l.changes > 0 || l.queue.spoiled.Load() {
		return
	}
	l.count = 0
	if !l.files.mayAsk(l) {
		return
	}
	l.used.Store(time.Now().UnixMilli())
	l.asking, l.out, l.asked = true, true, make(chan struct{})
	answered := make(chan answer, 1)
	l.files.lane.post(&call{
		req: request{
			head:  head{kind: kindGrant, timeout: l.files.timeout, handle: l.handle},
			grant: grantRequest{epoch: epoch, require: require},
		},
		done: func(a answer) { answered <- a },
	})
	go l.await(answered, require)
}

// await waits for the grant that was asked for, and takes the appends on that wait
// for it. One that comes too late is not used, and no other is asked for before.
func (l *hostLog) await(answered <-chan answer, require storage.Survives) {
	defer l.files.asks.Done()
	timer := time.NewTimer(askTimeout)
	defer timer.Stop()
	select {
	case a := <-answered:
		l.mu.Lock()
		l.out = false
		l.take(a, require)
		l.goOn()
		l.unlock()
		return
	case <-timer.C:
	}
	l.mu.Lock()
	l.goOn()
	l.unlock()
	a := <-answered // at the latest when the lane dies
	a.drop()
	l.mu.Lock()
	l.out = false
	l.refused()
	l.unlock()
}

// take begins to use the grant that came. The caller holds mu.
func (l *hostLog) take(a answer, require storage.Survives) {
	var g *grant
	err := a.err
	if err == nil && a.file == nil {
		err = errRevoked
	}
	if err == nil {
		a.grant.File = a.file
		g, err = newGrant(a.grant, require)
	}
	if err == nil {
		err = l.files.using(func() error { return nil })
	}
	if err != nil {
		a.drop()
		l.refused()
		return
	}
	if l.changes > 0 {
		a.drop()
		l.files.notLent(l)
		return
	}
	l.grant, l.askAfter = g, askAfterMin
	l.files.lane.counters.grantsBegun.Add(1)
	l.files.lane.wantTick()
}

// refused makes the log ask again, but later. The caller holds mu.
func (l *hostLog) refused() {
	l.files.lane.counters.grantsRefused.Add(1)
	l.askAfter = min(2*l.askAfter, askAfterMax)
	l.files.notLent(l)
}

// goOn takes those on that waited, in their order, and ends the waiting. The caller
// holds mu, which is free for moments.
func (l *hostLog) goOn() {
	for len(l.held) > 0 {
		held := l.held
		l.held = nil
		for _, c := range held {
			if l.granted(c) {
				continue
			}
			l.unlock()
			l.submit(context.Background(), c) // its own deadline bounds it
			l.mu.Lock()
		}
	}
	l.asking = false
	close(l.asked)
}
