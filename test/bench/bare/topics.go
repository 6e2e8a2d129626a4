package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// partitionsMax bounds the partitions of all topics: each is an open file.
const partitionsMax = 20_000

var (
	errTooMany = errors.New("too many partitions")
	errExists  = errors.New("there is such a topic")
)

type topic struct {
	name       string
	id         [16]byte
	partitions []*partition
}

// partition is a file that batches are written to. Its methods may be called concurrently.
type partition struct {
	topic [16]byte // its ID
	index int32
	file  *os.File

	mu        sync.Mutex
	end, next int64 // where the next batch goes in the file, and its offset
}

// append writes a batch of so many records behind the others, with their base offset,
// which it writes into the batch and returns. What was written is in the page cache.
func (p *partition) append(batch []byte, records int64) (base int64, err error) {
	p.mu.Lock()
	at, base := p.end, p.next
	p.end, p.next = at+int64(len(batch)), base+records
	p.mu.Unlock()
	recordbatch.Stamp(batch, base, 0)
	_, err = p.file.WriteAt(batch, at)
	return base, err
}

// offset is that of the next record.
func (p *partition) offset() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

func (t *topic) path(dir string, index int) string {
	return filepath.Join(dir, fmt.Sprintf("%x-%d", t.id, index))
}

// create makes a topic with empty files.
func (s *server) create(name string, partitions int) (*topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := 0
	for _, t := range s.topics {
		if t.name == name {
			return nil, errExists
		}
		open += len(t.partitions)
	}
	if partitions < 1 || partitions > partitionsMax-open {
		return nil, errTooMany
	}
	t := &topic{name: name}
	_, _ = rand.Read(t.id[:])
	for i := range partitions {
		f, err := os.Create(t.path(s.dir, i))
		if err != nil {
			return nil, errors.Join(err, s.remove(t))
		}
		t.partitions = append(t.partitions, &partition{topic: t.id, index: int32(i), file: f})
	}
	s.topics = append(s.topics, t)
	return t, nil
}

// find is the topic of which something is true, or nil.
func (s *server) find(is func(*topic) bool) *topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.topics, is); i >= 0 {
		return s.topics[i]
	}
	return nil
}

// partition is one, or nil.
func (s *server) partition(id [16]byte, index int32) *partition {
	return s.find(func(t *topic) bool { return t.id == id }).at(index)
}

// at is a partition, or nil; the topic may be nil.
func (t *topic) at(index int32) *partition {
	if t == nil || index < 0 || int(index) >= len(t.partitions) {
		return nil
	}
	return t.partitions[index]
}

// delete deletes a topic and its files, and reports whether it was there.
func (s *server) delete(id [16]byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.topics, func(t *topic) bool { return t.id == id })
	if i < 0 {
		return false, nil
	}
	t := s.topics[i]
	s.topics = slices.Delete(s.topics, i, i+1)
	return true, s.remove(t)
}

func (s *server) remove(t *topic) (err error) {
	for i, p := range t.partitions {
		err = errors.Join(err, p.file.Close(), os.Remove(t.path(s.dir, i)))
	}
	return err
}

// close closes all files.
func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.topics {
		for _, p := range t.partitions {
			_ = p.file.Close()
		}
	}
}
