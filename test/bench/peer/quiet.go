package peer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

const (
	// quietFor is how long a server's files must stay as they are.
	quietFor   = 500 * time.Millisecond
	quietEvery = 50 * time.Millisecond
	quietMax   = 30 * time.Second
)

// WaitQuiet waits until the server's files don't become fewer or more, as after a topic
// was deleted.
func (s *Server) WaitQuiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietMax)
	defer cancel()
	tick := time.NewTicker(quietEvery)
	defer tick.Stop()
	var last footprint
	since := time.Now()
	for {
		now, err := footprintOf(filepath.Join(s.dir, "data"))
		if err != nil {
			return err
		}
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) >= quietFor {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the files of %s don't come to rest: %w", s.Name, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// footprint is what there is below a folder.
type footprint struct {
	files int
	bytes int64
}

func footprintOf(dir string) (footprint, error) {
	var f footprint
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := e.Info()
		if err != nil {
			return err
		}
		f.files++
		f.bytes += i.Size()
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
		return footprint{files: -1}, nil
	}
	return f, err
}
