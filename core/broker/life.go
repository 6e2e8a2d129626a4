package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/replica"
)

const (
	// lifeName is the file below the data directory that tells how a broker's life went.
	lifeName = "life"
	// bootIDFile holds an ID that is new at each start of the machine. Where there is
	// none, each start of a broker that was not stopped cleanly counts as one.
	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

// life is what the file says. It is there, or nothing is known.
type life struct {
	BootID string             `json:"boot_id"`
	Flush  config.FlushPolicy `json:"flush"`
	// Stopped: every log was closed, and so flushed, at its end.
	Stopped bool `json:"stopped"`
	// Doubted: logs may have lost their ends before it began, or while it ran, and the cluster
	// has not heard of that.
	Doubted bool `json:"doubted"`
}

// lives keeps the file. A machine that loses its power takes with it what its page cache
// held, and a store may go back while its broker lives on: a broker to which this has happened
// must not count as one that still has all that it acknowledged. (KIP-966) Its methods may be
// called concurrently.
type lives struct {
	path string

	mu  sync.Mutex
	now life
	// unheard: it was doubted before this life; fell: a log went back in this one.
	unheard, fell bool
}

var _ replica.Doubts = (*lives)(nil)

// beginLife says how the last life ended, and that another one has begun. It is for
// before anything is written to a store. A disk that is full is no reason not to start:
// then nothing is known at the next one.
func beginLife(dir, bootID string, flush config.FlushPolicy) (*lives, error) {
	l := &lives{path: filepath.Join(dir, lifeName), now: life{BootID: bootID, Flush: flush}}
	var last life
	b, err := os.ReadFile(l.path)
	switch {
	case err == nil:
		l.unheard = json.Unmarshal(b, &last) != nil || last.mayHaveLost(bootID)
	case errors.Is(err, fs.ErrNotExist):
		l.unheard = true
	default:
		return nil, fmt.Errorf("read how the broker ended last: %w", err)
	}
	// What it says is over, whether or not there is room to say more.
	if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("note that the broker runs: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return nil, fmt.Errorf("note that the broker runs: %w", err)
	}
	return l, nil
}

// mayHaveLost says whether logs may lack what counted as acknowledged in this life.
func (l life) mayHaveLost(bootID string) bool {
	switch {
	case l.Doubted:
		return true
	case l.Stopped || l.Flush == config.FlushAlways:
		return false
	}
	return bootID == "" || l.BootID != bootID
}

// write notes the present life. What can't be written is not known at the next start.
func (l *lives) write() error { return l.note(func() {}) }

// note changes what is noted.
func (l *lives) note(change func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.now.Doubted = l.unheard || l.fell
	b, err := json.Marshal(l.now)
	if err != nil {
		return err
	}
	if err := writeSynced(l.path, string(b)+"\n"); err != nil {
		return errors.Join(fmt.Errorf("note how the broker runs: %w", err), os.Remove(l.path))
	}
	return nil
}

// told notes that the cluster knows which logs may have lost their ends before this life.
func (l *lives) told() error { return l.note(func() { l.unheard = false }) }

// stopped notes that every log was closed.
func (l *lives) stopped() error { return l.note(func() { l.now.Stopped = true }) }

// Doubt implements replica.Doubts.
func (l *lives) Doubt() error { return l.note(func() { l.fell = true }) }

// Settle implements replica.Doubts.
func (l *lives) Settle() error { return l.note(func() { l.fell = false }) }

// doubted says whether this life is to be registered as one whose logs may have lost their ends.
func (l *lives) doubted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unheard || l.fell
}

// bootID asks the system; "" where it does not know.
func bootID() string {
	b, err := os.ReadFile(bootIDFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
