package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/brokerd/brokerd/core/sim/cluster"
)

// result is a line of the file: what a seed came to.
type result struct {
	Build   string
	Minutes float64
	CPU     time.Duration
	Wrong   string `json:",omitempty"`
	Idle    string `json:",omitempty"`
	Report  cluster.Report
}

// results is the file, as far as it is of one program and one length.
type results struct {
	file    *os.File
	build   string
	minutes float64
	done    map[uint64]result
	highest uint64 // of all seeds of the file, whatever ran them
}

// buildOf is a digest of the program.
func buildOf() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read the program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// openResults reads the file, or makes it. A last line that is not whole is left aside: its
// seed is run again.
func openResults(path, build string, minutes float64) (*results, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	s := &results{file: f, build: build, minutes: minutes, done: make(map[uint64]result)}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, lineMax)
	for lines.Scan() {
		var r result
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		s.highest = max(s.highest, r.Report.Seed)
		if r.Build == build && r.Minutes == minutes {
			s.done[r.Report.Seed] = r
		}
	}
	if err := lines.Err(); err != nil {
		f.Close()
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// lineMax bounds a line of the file, and of what a process answers.
const lineMax = 1 << 20

// add writes a line, after a line break: what another run has left may lack its own.
func (s *results) add(r result) error {
	r.Build, r.Minutes = s.build, s.minutes
	s.done[r.Report.Seed], s.highest = r, max(s.highest, r.Report.Seed)
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := s.file.Write(append(append([]byte{'\n'}, line...), '\n')); err != nil {
		return fmt.Errorf("write what seed %d came to: %w", r.Report.Seed, err)
	}
	return nil
}

func (s *results) close() error { return s.file.Close() }
