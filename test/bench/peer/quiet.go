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
	quietBytes = 1 << 20
)

// WaitQuiet waits until the server's files don't become less or more by much, as they
// do after a topic was deleted.
func (s *Server) WaitQuiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietMax)
	defer cancel()
	tick := time.NewTicker(quietEvery)
	defer tick.Stop()
	var last int64
	since := time.Now()
	for {
		now, err := bytesBelow(s.Data())
		if err != nil {
			return err
		}
		if change := now - last; change > quietBytes || change < -quietBytes {
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

// bytesBelow is how large the files below a folder are. Those that go meanwhile don't count.
func bytesBelow(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil {
			var i fs.FileInfo
			if i, err = e.Info(); err == nil {
				sum += i.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return sum, err
}
