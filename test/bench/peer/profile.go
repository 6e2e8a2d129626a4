package peer

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/rig"
)

//go:embed profile/profile.go.txt
var profileSource []byte

// profilePatience is how long a process may take to write its profile.
const profilePatience = 10 * time.Second

// written is the folder below the profiles that processes write into.
const written = "written"

// BuildProfiled builds a program of this tree with one more file laid over the source of
// its main, so that each of its processes writes profiles into a folder: see Profile.
func BuildProfiled(ctx context.Context, program, pkg, profiles string) error {
	profiles, err := filepath.Abs(profiles)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(profiles, written), 0o755); err != nil {
		return err
	}
	source, err := filepath.Abs(pkg)
	if err != nil {
		return err
	}
	overlay, file := program+".overlay.json", program+".profiled.go"
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(source, "profiled.go"): file}})
	if err != nil {
		return err
	}
	for path, text := range map[string][]byte{overlay: replace, file: profileSource} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return rig.Build(ctx, "", program, pkg, "-overlay", overlay, "-ldflags", "-X main.profileDir="+filepath.Join(profiles, written))
}

// Profile begins a profile of each process of a server that BuildProfiled made, and
// returns what ends it and says which files there are now: PREFIX-ROLE-PID.cpu, and .allocs, of
// what was allocated since the process began.
func (s *Server) Profile(prefix string) (end func() ([]string, error), err error) {
	pids, err := s.Pids()
	if err != nil {
		return nil, err
	}
	if s.Profiles == "" || len(pids) == 0 {
		return nil, fmt.Errorf("profile %s: it was not built for that, or does not run", s.Name)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
			return nil, fmt.Errorf("profile %s: %w", s.Name, err)
		}
	}
	return func() ([]string, error) {
		var files []string
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
				return nil, fmt.Errorf("profile %s: %w", s.Name, err)
			}
			for _, kind := range []string{".cpu", ".allocs"} { // the first comes last
				path, err := s.wait("*-" + strconv.Itoa(pid) + kind)
				if err != nil {
					return nil, err
				}
				to := filepath.Join(s.Profiles, prefix+"-"+filepath.Base(path))
				if err := os.Rename(path, to); err != nil {
					return nil, err
				}
				files = append(files, to)
			}
		}
		return files, nil
	}, nil
}

// wait waits for a file that a process writes.
func (s *Server) wait(pattern string) (string, error) {
	late := time.NewTimer(profilePatience)
	defer late.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		found, err := filepath.Glob(filepath.Join(s.Profiles, written, pattern))
		if err != nil || len(found) > 0 {
			return strings.Join(found, ","), err
		}
		select {
		case <-tick.C:
		case <-late.C:
			return "", fmt.Errorf("no profile %s came within %s", pattern, profilePatience)
		}
	}
}
