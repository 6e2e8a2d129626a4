package api

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/image"
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

// topicIn finds the topic; nil: there is none.
func (k *fetchKey) topicIn(img *image.Image, byID bool) *image.Topic {
	if byID {
		t, _ := img.Topic(k.id)
		return t
	}
	t, _ := img.TopicByName(k.name)
	return t
}

// fetchWant is what a client wants of a partition.
type fetchWant struct {
	key         fetchKey
	topic       *image.Topic // nil where it is not known
	offset      int64
	logStart    int64
	epoch       model.LeaderEpoch
	lastFetched model.LeaderEpoch
	maxBytes    int32
}

// sessionPartition is a partition of a session. It is told by its place and its turn
// from those that are there before and after it.
type sessionPartition struct {
	fetchWant
	turn       int32 // counts what was at the place; odd: nothing is
	prev, next int32 // in the order, or among the places that are free

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
	img        *image.Image       // in which the topics were found
	partitions []sessionPartition // the first is the two ends of the order
	places     map[fetchKey]int32
	free       int32 // the first place that is free; 0: none
	ended      bool  // not counted in held any more
}

// begin checks a request's epoch, applies its changes and adds the partitions to
// fetch to `to`, in order.
func (s *fetchSession) begin(img *image.Image, epoch int32, now time.Time, named []fetchWant, forget []fetchKey, to []fetchPart) ([]fetchPart, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return to, model.ErrFetchSessionNotFound
	}
	if epoch != s.epoch {
		return to, model.ErrInvalidFetchEpoch
	}
	s.epoch = sessionEpochAfter(epoch)
	s.used = now
	if s.img != img {
		s.img = img
		for at := s.partitions[0].next; at != 0; at = s.partitions[at].next {
			p := &s.partitions[at]
			p.topic = p.key.topicIn(img, s.byID)
		}
	}
	for _, k := range forget {
		if at, ok := s.places[k]; ok {
			s.remove(at)
		}
	}
	for i := range named {
		s.put(&named[i])
	}
	return s.list(to), nil
}

func (s *fetchSession) list(to []fetchPart) []fetchPart {
	for at := s.partitions[0].next; at != 0; at = s.partitions[at].next {
		p := &s.partitions[at]
		to = append(to, fetchPart{fetchWant: p.fetchWant, place: at, turn: p.turn})
	}
	return to
}

// all adds the partitions to `to`, in order.
func (s *fetchSession) all(to []fetchPart) []fetchPart {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list(to)
}

// put adds a partition or changes what is wanted of it, and keeps what was told.
func (s *fetchSession) put(w *fetchWant) {
	if at, ok := s.places[w.key]; ok {
		s.partitions[at].fetchWant = *w
		return
	}
	at := s.free
	if at == 0 {
		at = int32(len(s.partitions))
		s.partitions = append(s.partitions, sessionPartition{turn: -1})
	} else {
		s.free = s.partitions[at].next
	}
	p := &s.partitions[at]
	*p = sessionPartition{fetchWant: *w, turn: p.turn + 1}
	s.places[w.key] = at
	s.link(at)
	s.held.Add(1)
}

func (s *fetchSession) remove(at int32) {
	s.unlink(at)
	p := &s.partitions[at]
	delete(s.places, p.key)
	*p = sessionPartition{turn: p.turn + 1, next: s.free}
	s.free = at
	s.held.Add(-1)
}

// link puts a partition at the end of the order.
func (s *fetchSession) link(at int32) {
	last := s.partitions[0].prev
	s.partitions[at].prev, s.partitions[at].next = last, 0
	s.partitions[last].next, s.partitions[0].prev = at, at
}

func (s *fetchSession) unlink(at int32) {
	prev, next := s.partitions[at].prev, s.partitions[at].next
	s.partitions[prev].next, s.partitions[next].prev = next, prev
}

// end gives back what the session counts for.
func (s *fetchSession) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		s.held.Add(-int64(len(s.places)))
	}
}

// tell notes the answers for the partitions of a fetch, and says of each whether it has
// anything new: records, an error, a divergence, other offsets, or the first word about
// it. A partition of which nothing is new is left out of the answer.
func (s *fetchSession) tell(f *fetching) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range f.parts {
		p := &f.parts[i]
		p.news = s.tellOne(p.place, p.turn, f.got(p))
	}
}

func (s *fetchSession) tellOne(place, turn int32, got *model.Fetched) (news bool) {
	p := &s.partitions[place]
	if place == 0 || p.turn != turn { // another request has forgotten it meanwhile
		return true
	}
	data := got.Err == nil && got.Bytes() > 0
	news = !p.told || data || got.Err != nil || got.Diverging != nil || got.Elsewhere || got.HighWatermark != p.toldHW || got.LogStart != p.toldLogStart
	p.told, p.toldHW, p.toldLogStart = true, got.HighWatermark, got.LogStart
	if got.Err != nil {
		p.toldHW = -1 // the next good answer is news
	}
	if data {
		s.unlink(place)
		s.link(place)
	}
	return news
}

func (s *fetchSession) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.places)
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

// follow goes on with the session that a request names: it applies the request's
// changes and fills in the partitions to fetch. A session that grows beyond the bound
// ends.
func (c *fetchSessions) follow(f *fetching) error {
	s, err := c.find(f.req.SessionID, f.byID())
	if err != nil {
		return err
	}
	if f.parts, err = s.begin(f.img, f.req.SessionEpoch, c.now(), f.named, f.forget, f.parts); err != nil {
		return err
	}
	if len(f.named) > 0 && c.held.Load() > sessionPartitionsMax {
		c.remove(s.id)
		return model.ErrFetchSessionNotFound
	}
	f.session = s
	return nil
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

// add begins a session with the partitions of a request. It returns nil when there is
// no slot for it.
func (c *fetchSessions) add(img *image.Image, byID bool, named []fetchWant) *fetchSession {
	if c.held.Load()+int64(len(named)) > sessionPartitionsMax {
		return nil
	}
	now := c.now()
	s := &fetchSession{
		byID: byID, created: now, held: &c.held, epoch: sessionEpochAfter(sessionEpochInitial), used: now, img: img,
		partitions: make([]sessionPartition, 1, 1+len(named)), places: make(map[fetchKey]int32, len(named)),
	}
	for i := range named {
		s.put(&named[i])
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
		if evicted = c.evict(len(s.places), now); !evicted {
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
