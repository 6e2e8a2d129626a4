package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/sdk/storage"
)

// foundingName is the file below the data directory that holds the ID of a
// cluster that is about to be created. Stores that take the ID keep it, so that
// it must be the same one when the start is tried again.
const foundingName = "founding"

// founding is a cluster that is to be created, or joined, once the stores have taken its
// identity.
type founding struct {
	path    string
	cluster model.ClusterID
	verdict quorum.Verdict // of the seeds; none where no other is named
}

// propose returns the cluster that this start is to create or to join, or nil where the
// directory has one, or where there is none to be had.
func (b *Broker) propose(ctx context.Context) (*founding, error) {
	f := &founding{path: filepath.Join(b.cfg.Data, foundingName)}
	_, err := os.Stat(quorum.Database(b.quorumDir()))
	if err == nil {
		return nil, f.done() // left by a start that was killed; it must not outlive the database
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil // opening it says what is wrong
	}
	if b.cfg.Transport.Used() { // also without seeds: a transport that cannot be opened creates nothing
		if f.verdict, err = b.find(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case f.verdict.Join != "":
		f.cluster = f.verdict.Join
		return f, nil
	case !b.cfg.Cluster.Bootstrap:
		return nil, nil
	}
	before, err := os.ReadFile(f.path)
	if id := strings.TrimSpace(string(before)); err == nil && id != "" {
		f.cluster = model.ClusterID(id)
		return f, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the ID of the cluster to create: %w", err)
	}
	if f.cluster, err = quorum.NewClusterID(rand.Reader); err != nil {
		return nil, err
	}
	if err := writeSynced(f.path, string(f.cluster)+"\n"); err != nil {
		return nil, fmt.Errorf("write down the ID of the cluster to create: %w", err)
	}
	return f, nil
}

// writeSynced makes a file durable, and its name.
func writeSynced(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// done forgets the proposal: the cluster is created, or no store knows of it.
func (f *founding) done() error {
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the ID of the cluster to create: %w", err)
	}
	return nil
}

// refused explains a start that created no cluster, because a store did not open.
// Nothing is left of the proposal unless a store has taken it.
func (b *Broker) refused(f *founding, stores []store, err error) error {
	switch {
	case errors.Is(err, storage.ErrFenced) && f.verdict.Join != "":
		err = fmt.Errorf("this start would join cluster %s, which the seeds know, and a store does not take that: %w. "+
			"If the store is of that cluster's broker with another node.id, correct it; to join it with nothing, move the store's directory away", f.cluster, err)
	case errors.Is(err, storage.ErrFenced):
		database := quorum.Database(b.quorumDir())
		err = fmt.Errorf("no cluster was created: %s, which has the metadata, is missing, so that this start would begin a new cluster (%s), and a store does not take that: %w. "+
			"If the store has records of an earlier cluster, put a copy of quorum.db back: its topics can come back from nowhere else. To start empty, move the store's directory away",
			database, f.cluster, err)
	}
	for _, s := range stores {
		if s.DirectoryID() != (storage.DirectoryID{}) {
			return err
		}
	}
	return errors.Join(err, f.done())
}

// checkPorts binds what is going to be listened on and lets it go again, so that
// a taken port is told before anything is created.
func (b *Broker) checkPorts(ctx context.Context) error {
	var bound []net.Listener
	var failed error
	for _, l := range b.cfg.Listeners {
		var cfg net.ListenConfig
		n, err := cfg.Listen(ctx, "tcp", l.Address())
		if err != nil {
			failed = fmt.Errorf("bind the listeners: %s: %w", l, err)
			break
		}
		bound = append(bound, n)
	}
	for _, n := range bound {
		failed = errors.Join(failed, n.Close())
	}
	return failed
}

func (b *Broker) quorumDir() string { return filepath.Join(b.cfg.Data, "quorum") }
