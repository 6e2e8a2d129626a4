package quorum

import "github.com/brokerd/brokerd/core/image"

const (
	// snapshotBytes of log, too, are worth a snapshot: all of it is in memory.
	snapshotBytes = 64 << 20
	// snapshotRetry entries after one that had no room, another is tried.
	snapshotRetry = 100
)

// maybeSnapshot saves the image once the log is long, and drops that much of the log.
// Where there is no room for one, the log goes on.
func (n *Node) maybeSnapshot() error {
	if n.applied-n.snapped < uint64(n.cfg.SnapshotEntries) && n.logBytes < snapshotBytes || n.applied < n.snapAfter {
		return nil
	}
	var records []image.Record
	for r := range n.Image().Records() {
		records = append(records, r)
	}
	err := n.store.snapshot(n.applied, n.conf, encodeEntry(session{}, 0, records))
	if isFull(err) { // the log goes on without
		n.snapAfter = n.applied + snapshotRetry
		n.log.Warn("no room for a snapshot of the metadata", "dir", n.cfg.Dir, "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	n.snapped, n.logBytes = n.applied, 0
	n.log.Debug("snapshot of the metadata", "offset", n.applied, "records", len(records))
	return nil
}
