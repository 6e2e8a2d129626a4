package wire

import (
	"encoding/binary"
	"fmt"
)

// The versions of Fetch that change the layout of the request or the response.
const (
	fetchStarts   = 5  // log start offsets (KIP-107)
	fetchSessions = 7  // sessions (KIP-227)
	fetchEpochs   = 9  // leader epochs (KIP-320)
	fetchRacks    = 11 // the client's rack (KIP-392)
	fetchFlexible = 12 // and where logs diverge (KIP-595)
	fetchByID     = 13 // topics have IDs and no names (KIP-516)
	fetchStates   = 15 // replicas have a state (KIP-903)
)

// fetchKeep is for how many topics, and how many partitions, room is kept, to be used
// again.
const fetchKeep = 1024

// Fetch is a Fetch request as it came. It is made to be read into again: what it needs
// for topics and partitions it keeps. It is for one goroutine at a time.
//
// Source: Kafka's protocol, versions 4 to 18.
type Fetch struct {
	ReplicaID      int32 // -1 of a consumer
	MaxWaitMillis  int32
	MinBytes       int32
	MaxBytes       int32
	IsolationLevel int8
	SessionID      int32
	SessionEpoch   int32 // -1 without a session
	Topics         []FetchTopic
	Forgotten      []ForgottenTopic
	Rack           []byte // the client's; empty: not told

	partitions []FetchPartition
	forgotten  []int32
}

// FetchTopic is the part of a Fetch about one topic: it has a name below version 13,
// and an ID from then on.
type FetchTopic struct {
	Name       []byte
	ID         [16]byte
	Partitions []FetchPartition
}

// FetchPartition is what is asked of one partition. What its version does not have is
// -1.
type FetchPartition struct {
	Index            int32
	LeaderEpoch      int32
	LastFetchedEpoch int32
	MaxBytes         int32
	Offset           int64
	LogStart         int64
}

// ForgottenTopic is partitions that a session is to go on without.
type ForgottenTopic struct {
	Name       []byte
	ID         [16]byte
	Partitions []int32
}

// Read reads the body of a request of a version that is served. What it reads shares
// the body's memory, of which nothing is changed, and is there until the next Read or
// Forget. Bytes after the request are ignored, as Kafka ignores them. The error wraps
// ErrMalformed.
//
// It takes memory for what is there, never for what a count claims.
func (f *Fetch) Read(version int16, body []byte) error {
	if len(body) > maxBodyBytes {
		return fmt.Errorf("%w: Fetch of %d bytes, more than %d", ErrMalformed, len(body), maxBodyBytes)
	}
	r := reader{src: body, flexible: version >= fetchFlexible, left: len(body)}
	f.ReplicaID = -1
	if version < fetchStates {
		f.ReplicaID = r.int32()
	}
	f.MaxWaitMillis, f.MinBytes, f.MaxBytes = r.int32(), r.int32(), r.int32()
	f.IsolationLevel = r.int8()
	f.SessionID, f.SessionEpoch = 0, -1
	if version >= fetchSessions {
		f.SessionID, f.SessionEpoch = r.int32(), r.int32()
	}
	f.readTopics(&r, version)
	f.readForgotten(&r, version)
	f.Rack = nil
	if version >= fetchRacks {
		f.Rack = r.name()
	}
	f.readTags(&r)
	if r.bad {
		return fmt.Errorf("%w: Fetch version %d ends inside a field, or has a null where none may be", ErrMalformed, version)
	}
	return nil
}

func (f *Fetch) readTopics(r *reader, version int16) {
	f.Topics, f.partitions = f.Topics[:0], f.partitions[:0]
	for i := r.arrayLen(); i > 0 && !r.bad; i-- {
		var t FetchTopic
		t.Name, t.ID = r.topic(version)
		first := len(f.partitions)
		for j := r.arrayLen(); j > 0 && !r.bad; j-- {
			f.partitions = append(f.partitions, FetchPartition{Index: r.int32(), LeaderEpoch: -1, LastFetchedEpoch: -1, LogStart: -1})
			p := &f.partitions[len(f.partitions)-1]
			if version >= fetchEpochs {
				p.LeaderEpoch = r.int32()
			}
			p.Offset = r.int64()
			if version >= fetchFlexible {
				p.LastFetchedEpoch = r.int32()
			}
			if version >= fetchStarts {
				p.LogStart = r.int64()
			}
			p.MaxBytes = r.int32()
			r.followerTags()
		}
		r.tags()
		t.Partitions = f.partitions[first:len(f.partitions):len(f.partitions)]
		f.Topics = append(f.Topics, t)
	}
}

func (f *Fetch) readForgotten(r *reader, version int16) {
	f.Forgotten, f.forgotten = f.Forgotten[:0], f.forgotten[:0]
	if version < fetchSessions {
		return
	}
	for i := r.arrayLen(); i > 0 && !r.bad; i-- {
		var t ForgottenTopic
		t.Name, t.ID = r.topic(version)
		first := len(f.forgotten)
		for j := r.arrayLen(); j > 0 && !r.bad; j-- {
			f.forgotten = append(f.forgotten, r.int32())
		}
		r.tags()
		t.Partitions = f.forgotten[first:len(f.forgotten):len(f.forgotten)]
		f.Forgotten = append(f.Forgotten, t)
	}
}

// topic is what a version of Fetch calls a topic.
func (r *reader) topic(version int16) (name []byte, id [16]byte) {
	if version >= fetchByID {
		return nil, r.uuid()
	}
	return r.name(), id
}

// followerTags passes over a partition's tagged fields, which only followers use.
func (r *reader) followerTags() {
	const directory, highWatermark = 0, 1
	for n := r.tagCount(); n > 0 && !r.bad; n-- {
		switch tag, field := r.tag(); tag {
		case directory:
			field.take(16)
			r.bad = r.bad || field.bad
		case highWatermark:
			field.int64()
			r.bad = r.bad || field.bad
		}
	}
}

// readTags reads the tagged fields of the request, in which replicas say who they are.
func (f *Fetch) readTags(r *reader) {
	const cluster, replica = 0, 1
	for n := r.tagCount(); n > 0 && !r.bad; n-- {
		switch tag, field := r.tag(); tag {
		case cluster:
			field.text()
			r.bad = r.bad || field.bad
		case replica:
			f.ReplicaID = max(f.ReplicaID, field.int32())
			field.int64() // its epoch
			field.tags()
			r.bad = r.bad || field.bad
		}
	}
}

func (r *reader) tagCount() int {
	if !r.flexible {
		return 0
	}
	return r.uvarint()
}

// tag is a tagged field and what is in it.
func (r *reader) tag() (tag int, field reader) {
	r.part()
	tag = r.uvarint()
	field = reader{flexible: true, left: r.left}
	field.src = r.take(r.uvarint())
	return tag, field
}

func (r *reader) int8() int8 {
	b := r.take(1)
	if b == nil {
		return 0
	}
	return int8(b[0])
}

func (r *reader) int64() int64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

// Forget lets go of the body, so that a Fetch that waits to be read into holds no
// memory but what little it keeps.
func (f *Fetch) Forget() {
	topics, partitions, forgotten, lost := f.Topics, f.partitions, f.Forgotten, f.forgotten
	*f = Fetch{}
	if cap(topics) <= fetchKeep && cap(partitions) <= fetchKeep && cap(forgotten) <= fetchKeep && cap(lost) <= fetchKeep {
		clear(topics)
		clear(forgotten)
		f.Topics, f.partitions, f.Forgotten, f.forgotten = topics[:0], partitions[:0], forgotten[:0], lost[:0]
	}
}
