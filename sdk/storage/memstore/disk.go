package memstore

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Disk is what outlives a store. The zero value is an empty disk of unlimited
// size. Its methods may be called from many goroutines.
type Disk struct {
	mu         sync.Mutex // also guards everything in the Store that holds the disk
	owned      bool
	owner      storage.Identity
	directory  storage.DirectoryID
	holder     *Store
	logs       map[storage.LogID]*diskLog
	capacity   int64 // zero: no limit
	lastHandle storage.Handle
}

// diskLog is one log as it is on the disk.
type diskLog struct {
	label   string
	start   int64 // log start offset
	end     int64 // LEO
	durable int64 // the recovery point: everything below outlives LosePower
	batches []storedBatch
	units   int // how many units were ever begun
	blobs   map[string]storage.Blob
	// suspect: a suffix may have been lost since the last clean close.
	suspect bool
}

// storedBatch is a batch and what was known of it when it was written. The
// bytes may have been damaged since; the rest is not.
type storedBatch struct {
	storage.BatchInfo
	data    []byte
	written time.Time
	// unit is where it lies. Its first batch's timestamp, and its bytes so far,
	// decide when the next one begins.
	unit      int
	unitBytes int64
	unitFirst int64
}

// SetCapacity limits the disk to so many bytes of batches and blobs. Zero lifts
// the limit. What is there already stays.
func (d *Disk) SetCapacity(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = bytes
}

// SetFree limits the disk to so many bytes more than it holds now; negative
// lifts the limit.
func (d *Disk) SetFree(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = 0
	if bytes >= 0 {
		d.capacity = max(d.used()+bytes, 1)
	}
}

// LosePower kills the store that holds the disk and takes from each log, as
// seed decides, some or all or none of the batches that were not flushed. The
// first batch lost may leave its first bytes behind. It returns how many batches
// were lost, and how many of them were torn rather than gone.
func (d *Disk) LosePower(seed uint64) (lost, torn int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.letGo()
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, id := range d.ids() {
		log := d.logs[id]
		flushed := log.search(log.durable)
		unflushed := len(log.batches) - flushed
		if unflushed == 0 {
			continue
		}
		log.suspect = true
		keep := flushed + rng.IntN(unflushed+1)
		lost += len(log.batches) - keep
		if keep < len(log.batches) && rng.IntN(2) == 0 {
			torn++
			// What is there may have been torn before.
			log.tear(keep, rng.IntN(len(log.batches[keep].data)+1))
		} else {
			log.tear(keep, 0)
		}
		log.end = max(log.end, log.durable) // Replace may have left no batch there
	}
	return lost, torn
}

// Durable is the offset below which a log outlives LosePower; false: there is no such log.
func (d *Disk) Durable(id storage.LogID) (int64, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	log := d.logs[id]
	if log == nil {
		return 0, false
	}
	return log.durable, true
}

// Kill ends the store that holds the disk, if any, as Store.Kill does.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.letGo()
}

// FlipBit inverts one bit of the stored batch that holds offset.
func (d *Disk) FlipBit(id storage.LogID, offset int64, bit int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	log := d.logs[id]
	if log == nil {
		return fmt.Errorf("flip a bit of %v: no such log", id)
	}
	i := log.search(offset)
	if i == len(log.batches) || log.batches[i].BaseOffset > offset {
		return fmt.Errorf("flip a bit of %v: no batch holds offset %d", id, offset)
	}
	data := slices.Clone(log.batches[i].data)
	if bit < 0 || bit >= 8*len(data) {
		return fmt.Errorf("flip a bit of %v: the batch has no bit %d", id, bit)
	}
	data[bit/8] ^= 1 << (bit % 8)
	log.batches[i].data = data
	return nil
}

// Overwrite puts other bytes into the stored copy of batch, beginning at byte
// at.
func (d *Disk) Overwrite(id storage.LogID, batch []byte, at int, with []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	log, i, err := d.find(id, batch)
	if err != nil {
		return fmt.Errorf("overwrite: %w", err)
	}
	if at < 0 || at+len(with) > len(batch) {
		return fmt.Errorf("overwrite: bytes %d to %d are not in the batch", at, at+len(with))
	}
	data := slices.Clone(log.batches[i].data)
	copy(data[at:], with)
	log.batches[i].data = data
	return nil
}

// Tear drops all that is stored of a log after the first keep bytes of batch.
func (d *Disk) Tear(id storage.LogID, batch []byte, keep int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	log, i, err := d.find(id, batch)
	if err != nil {
		return fmt.Errorf("tear: %w", err)
	}
	if keep < 0 || keep > len(batch) {
		return fmt.Errorf("tear: the batch has no %d bytes", keep)
	}
	if keep == len(batch) {
		i, keep = i+1, 0
	}
	log.tear(i, keep)
	return nil
}

// find returns the log and the position in it of a stored copy of batch.
func (d *Disk) find(id storage.LogID, batch []byte) (*diskLog, int, error) {
	log := d.logs[id]
	if log == nil {
		return nil, 0, fmt.Errorf("no log %v", id)
	}
	for i := range log.batches {
		if bytes.Equal(log.batches[i].data, batch) {
			return log, i, nil
		}
	}
	return nil, 0, fmt.Errorf("no such batch in %v", id)
}

// letGo ends the store that holds the disk.
func (d *Disk) letGo() {
	if d.holder != nil {
		d.holder.dead = true
		d.holder = nil
	}
}

// used returns the bytes of all batches and blobs.
func (d *Disk) used() int64 {
	total := int64(0)
	for _, log := range d.logs {
		total += log.bytes()
		for _, blob := range log.blobs {
			total += int64(len(blob.Data))
		}
	}
	return total
}

// room returns ErrFull when the disk cannot take so many bytes more.
func (d *Disk) room(more int64) error {
	if d.capacity == 0 || more <= 0 {
		return nil
	}
	if used := d.used(); used+more > d.capacity {
		return storage.Errorf(storage.ErrFull, "%d bytes of %d are used and %d more do not fit", used, d.capacity, more)
	}
	return nil
}

// ids returns the logs' IDs in an order that does not change.
func (d *Disk) ids() []storage.LogID {
	ids := make([]storage.LogID, 0, len(d.logs))
	for id := range d.logs {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b storage.LogID) int {
		return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
	})
	return ids
}
