package broker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/telemetry"
	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// damagePlacesMax bounds the places of damage that are remembered; more are
	// counted and logged once a minute together.
	damagePlacesMax = 1000
	// damageShown bounds those that the status names.
	damageShown = 20
	// damageLogEvery is how often one place is logged.
	damageLogEvery = time.Minute
)

// troubles remembers what replicas tell of their stores, for the status: damage
// that reads met, and stores without room. It counts all the rest as telemetry
// does.
type troubles struct {
	telemetry.Replica
	log *slog.Logger
	now func() time.Time

	fullStores atomic.Int32 // of full, so that most appends take no lock

	mu      sync.Mutex
	damaged map[damage]time.Time // to when it was logged
	full    map[string]time.Time // store to since when
}

// damage is a place whose records cannot be read.
type damage struct {
	topic     string
	partition int32
	offset    int64
}

func newTroubles(counts telemetry.Replica, log *slog.Logger, now func() time.Time) *troubles {
	return &troubles{Replica: counts, log: log, now: now, damaged: make(map[damage]time.Time), full: make(map[string]time.Time)}
}

// Damaged notes a read that met damage.
func (t *troubles) Damaged(topic string, partition int32, offset int64, err error) {
	t.Replica.Damaged(topic)
	at, now := damage{topic, partition, offset}, t.now()
	t.mu.Lock()
	if _, known := t.damaged[at]; !known && len(t.damaged) >= damagePlacesMax {
		at = damage{}
	}
	logged, known := t.damaged[at]
	tell := !known || now.Sub(logged) >= damageLogEvery
	if tell {
		t.damaged[at] = now
	}
	t.mu.Unlock()
	if tell {
		t.log.Error("stored records are damaged", "topic", topic, "partition", partition, "offset", offset, "err", err)
	}
}

// Appended notes whether a store has room.
func (t *troubles) Appended(store string, err error) {
	full := errors.Is(err, storage.ErrFull)
	switch {
	case full:
		t.Refused(store)
	case err != nil || t.fullStores.Load() == 0:
		return // it says nothing of room, or nothing new
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, was := t.full[store]
	switch {
	case full && !was:
		t.full[store] = t.now()
		t.fullStores.Add(1)
		t.Full(store, true)
	case !full && was:
		delete(t.full, store)
		t.fullStores.Add(-1)
		t.Full(store, false)
	}
}

// isFull says since when a store refuses appends for want of room.
func (t *troubles) isFull(store string) (since time.Time, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, full = t.full[store]
	return since, full
}

// damages are the places that can still be reached: those of topics that are
// gone, or below a log's start, are forgotten.
func (t *troubles) damages(img *image.Image, start map[model.Partition]int64) []damage {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []damage
	for d := range t.damaged {
		if d == (damage{}) {
			continue
		}
		topic, ok := img.TopicByName(d.topic)
		if ok {
			var from int64
			from, ok = start[model.Partition{Topic: topic.ID, Index: d.partition}]
			ok = ok && from <= d.offset
		}
		if !ok {
			delete(t.damaged, d)
			continue
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b damage) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	return out
}

// damageWarnings are sentences about the places.
func damageWarnings(places []damage) []string {
	var out []string
	for i, d := range places {
		if i == damageShown {
			return append(out, fmt.Sprintf("stored records are damaged at %d more places; the log names them", len(places)-i))
		}
		out = append(out, fmt.Sprintf("stored records of %s, partition %d, are damaged at offset %d: restore a backup, or give them up by DeleteRecords beyond them", d.topic, d.partition, d.offset))
	}
	return out
}

// lostStores says which replicas of this broker are registered in directories
// that none of its stores is: the store was moved away, emptied or replaced.
func lostStores(img *image.Image, node model.NodeID, stores []model.DirectoryID) []string {
	lost := make(map[model.DirectoryID]int)
	for t := range img.Topics() {
		for _, p := range t.Partitions {
			for i, r := range p.Replicas {
				if r == node && i < len(p.Directories) && !p.Directories[i].IsZero() && !slices.Contains(stores, p.Directories[i]) {
					lost[p.Directories[i]]++
				}
			}
		}
	}
	var out []string
	for dir, n := range lost {
		out = append(out, fmt.Sprintf("%d replicas of this broker are in directory %s, which none of its stores is: a store was removed, moved or replaced by a new one, and their records are not here; put it back, or delete the topics", n, dir))
	}
	slices.Sort(out)
	return out
}
