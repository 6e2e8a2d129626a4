package api

import (
	"container/list"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// Epochs of a fetch session. (KIP-227)
const (
	sessionEpochInitial int32 = 0  // begin a session
	sessionEpochFinal   int32 = -1 // no session, and end the one that is named
)

// sessionAgeMin is how long a session is safe from a bigger one, and how long it
// may be idle before any may take its slot.
const sessionAgeMin = 2 * time.Minute

// sessionPartitionsMax bounds the partitions of all sessions together, each of
// which costs some 250 bytes. Beyond it clients go on with full fetches.
const sessionPartitionsMax = 1 << 19

// fetchKey names a partition in a session: by the topic's ID, or by its name
// from clients that know no IDs. Names and IDs that do not exist are kept too:
// their error is told again with every answer.
type fetchKey struct {
	id    model.TopicID
	name  string
	index int32
}

// fetchPartition is what a client wants of a partition, and what it was told
// last.
type fetchPartition struct {
	key         fetchKey
	offset      int64
	logStart    int64
	epoch       model.LeaderEpoch
	lastFetched model.LeaderEpoch
	maxBytes    int32

	told         bool // there was an answer
	toldHW       int64
	toldLogStart int64
}

// fetchSession is the state of one incremental fetch. Its partitions are in the
// order in which they are served next: those that got records go to the end.
// mu guards all but id, byID, created and held.
type fetchSession struct {
	id      int32
	byID    bool // topics are named by ID: Fetch 13 and above
	created time.Time
	held    *atomic.Int64 // partitions of all sessions

	mu         sync.Mutex
	epoch      int32 // the one that the next request must have
	used       time.Time
	partitions map[fetchKey]*list.Element // of *fetchPartition
	order      *list.List
	ended      bool // not counted in held any more
}

// begin checks a request's epoch, applies its changes and returns the partitions
// to fetch, in order.
func (s *fetchSession) begin(epoch int32, now time.Time, want []fetchPartition, forget []fetchKey) ([]fetchPartition, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, model.ErrFetchSessionNotFound
	}
	if epoch != s.epoch {
		return nil, model.ErrInvalidFetchEpoch
	}
	s.epoch = sessionEpochAfter(epoch)
	s.used = now
	for _, k := range forget {
		if e, ok := s.partitions[k]; ok {
			s.order.Remove(e)
			delete(s.partitions, k)
			s.held.Add(-1)
		}
	}
	for _, w := range want {
		s.put(w)
	}
	out := make([]fetchPartition, 0, s.order.Len())
	for e := s.order.Front(); e != nil; e = e.Next() {
		out = append(out, *e.Value.(*fetchPartition))
	}
	return out, nil
}

// put adds a partition or changes what is wanted of it, and keeps what was told.
func (s *fetchSession) put(w fetchPartition) {
	if e, ok := s.partitions[w.key]; ok {
		p := e.Value.(*fetchPartition)
		w.told, w.toldHW, w.toldLogStart = p.told, p.toldHW, p.toldLogStart
		*p = w
		return
	}
	s.partitions[w.key] = s.order.PushBack(&w)
	s.held.Add(1)
}

// end gives back what the session counts for.
func (s *fetchSession) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		s.held.Add(-int64(s.order.Len()))
	}
}

// tell notes an answer for a partition and reports whether it has anything new:
// records, an error, a divergence, other offsets, or the first word about it. A
// partition of which nothing is new is left out of the answer.
func (s *fetchSession) tell(k fetchKey, f model.Fetched) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.partitions[k]
	if !ok {
		return true
	}
	p := e.Value.(*fetchPartition)
	news := !p.told || len(f.Data) > 0 || f.Err != nil || f.Diverging != nil ||
		f.HighWatermark != p.toldHW || f.LogStart != p.toldLogStart
	p.told, p.toldHW, p.toldLogStart = true, f.HighWatermark, f.LogStart
	if f.Err != nil {
		p.toldHW = -1 // the next good answer is news
	}
	if len(f.Data) > 0 {
		s.order.MoveToBack(e)
	}
	return news
}

func (s *fetchSession) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len()
}

func (s *fetchSession) lastUsed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func sessionEpochAfter(epoch int32) int32 {
	if epoch == math.MaxInt32 {
		return 1
	}
	return epoch + 1
}

// fetchSessions is the cache of sessions, bounded by slots. A full cache gives a
// slot to a new session only where another was idle for sessionAgeMin, or is
// both older than that and smaller; without a slot a client goes on with full
// fetches, which are right and cost more. (KIP-227)
type fetchSessions struct {
	slots  int
	now    func() time.Time
	events Events

	held atomic.Int64

	mu   sync.Mutex
	byID map[int32]*fetchSession
}

func newFetchSessions(slots int, now func() time.Time, events Events) *fetchSessions {
	return &fetchSessions{slots: slots, now: now, events: events, byID: make(map[int32]*fetchSession)}
}

// follow goes on with a session: it applies a request's changes and returns the
// partitions to fetch. A session that grows beyond the bound ends.
func (c *fetchSessions) follow(id, epoch int32, byID bool, want []fetchPartition, forget []fetchKey) (*fetchSession, []fetchPartition, error) {
	s, err := c.find(id, byID)
	if err != nil {
		return nil, nil, err
	}
	all, err := s.begin(epoch, c.now(), want, forget)
	if err != nil {
		return nil, nil, err
	}
	if len(want) > 0 && c.held.Load() > sessionPartitionsMax {
		c.remove(id)
		return nil, nil, model.ErrFetchSessionNotFound
	}
	return s, all, nil
}

func (c *fetchSessions) find(id int32, byID bool) (*fetchSession, error) {
	c.mu.Lock()
	s, ok := c.byID[id]
	c.mu.Unlock()
	if !ok {
		return nil, model.ErrFetchSessionNotFound
	}
	if s.byID != byID {
		return nil, model.ErrFetchSessionTopicID
	}
	return s, nil
}

// remove ends a session, if it exists.
func (c *fetchSessions) remove(id int32) {
	c.mu.Lock()
	s, ok := c.byID[id]
	delete(c.byID, id)
	open := len(c.byID)
	c.mu.Unlock()
	if ok {
		s.end()
		c.events.FetchSessions(open, false)
	}
}

// add begins a session with these partitions. It returns nil when there is no
// slot for it.
func (c *fetchSessions) add(byID bool, want []fetchPartition) *fetchSession {
	if c.held.Load()+int64(len(want)) > sessionPartitionsMax {
		return nil
	}
	now := c.now()
	s := &fetchSession{
		byID: byID, created: now, held: &c.held, epoch: sessionEpochAfter(sessionEpochInitial), used: now,
		partitions: make(map[fetchKey]*list.Element, len(want)), order: list.New(),
	}
	for _, w := range want {
		s.put(w)
	}
	open, evicted, ok := c.insert(s, now)
	if !ok {
		s.end()
		return nil
	}
	c.events.FetchSessions(open, evicted)
	return s
}

func (c *fetchSessions) insert(s *fetchSession, now time.Time) (open int, evicted, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= c.slots {
		if evicted = c.evict(len(s.partitions), now); !evicted {
			return 0, false, false
		}
	}
	for {
		id := rand.Int32()
		if _, taken := c.byID[id]; id > 0 && !taken {
			s.id, c.byID[id] = id, s
			return len(c.byID), evicted, true
		}
	}
}

// evict frees a slot for a session of this size, if one may be freed: the one
// idle for the longest time, else the smallest.
func (c *fetchSessions) evict(size int, now time.Time) bool {
	var idlest, smallest *fetchSession
	var idleSince time.Time
	smallestSize := size
	for _, s := range c.byID {
		if used := s.lastUsed(); now.Sub(used) > sessionAgeMin && (idlest == nil || used.Before(idleSince)) {
			idlest, idleSince = s, used
		}
		if n := s.size(); n < smallestSize && now.Sub(s.created) > sessionAgeMin {
			smallest, smallestSize = s, n
		}
	}
	if idlest == nil {
		idlest = smallest
	}
	if idlest == nil {
		return false
	}
	delete(c.byID, idlest.id)
	idlest.end()
	return true
}
