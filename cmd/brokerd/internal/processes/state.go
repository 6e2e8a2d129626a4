package processes

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Max is how many brokers there can be.
const Max = 9

const (
	ownDir      = "dev" // below the data directory: all that is this package's
	stateName   = "state.json"
	secretName  = "secret"
	secretBytes = 32
	stateFormat = 1
	stateMax    = 64 << 10 // bytes of the file
)

// State is what the brokers of a data directory keep from one start to the next.
type State struct {
	Version int `json:"version"`
	// Endpoints are where the brokers listen to each other, host:port, the first broker's first.
	Endpoints []string `json:"endpoints"`
	// Founded: the first broker has created the cluster.
	Founded bool `json:"founded"`
}

// Kept returns the state of the brokers of a data directory; false: there are none.
func Kept(data string) (State, bool, error) {
	path := filepath.Join(data, ownDir, stateName)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, fmt.Errorf("read what the brokers keep: %w", err)
	}
	var s State
	if err := json.Unmarshal(content[:min(len(content), stateMax)], &s); err != nil {
		return State{}, false, fmt.Errorf("read what the brokers keep: %s: %w", path, err)
	}
	if s.Version != stateFormat || len(s.Endpoints) == 0 || len(s.Endpoints) > Max {
		return State{}, false, fmt.Errorf("read what the brokers keep: %s is of another release, or damaged", path)
	}
	return s, true, nil
}

// Grow gives the state endpoints for so many brokers. Those that it has stay.
func (s *State) Grow(brokers int) error {
	s.Version = stateFormat
	for len(s.Endpoints) < brokers {
		e, err := freeEndpoint(s.Endpoints)
		if err != nil {
			return err
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return nil
}

// Save keeps the state of a data directory.
func (s State) Save(data string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("keep what the brokers need: %w", err)
	}
	if err := writeFile(data, stateName, append(content, '\n')); err != nil {
		return fmt.Errorf("keep what the brokers need: %w", err)
	}
	return nil
}

// Secret is the path of the file with the secret of a data directory's brokers, which is
// drawn when there is none.
func Secret(data string) (string, error) {
	path := filepath.Join(data, ownDir, secretName)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	var drawn [secretBytes]byte
	if _, err := rand.Read(drawn[:]); err != nil {
		return "", fmt.Errorf("draw a secret: %w", err)
	}
	if err := writeFile(data, secretName, []byte(base64.StdEncoding.EncodeToString(drawn[:])+"\n")); err != nil {
		return "", fmt.Errorf("keep a secret: %w", err)
	}
	return path, nil
}

// makeOwn makes the directory that is this user's alone.
func makeOwn(data string) (string, error) {
	dir := filepath.Join(data, ownDir)
	return dir, os.MkdirAll(dir, 0o700)
}

// writeFile puts a file in the place of the one before, as a whole.
func writeFile(data, name string, content []byte) error {
	dir, err := makeOwn(data)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, name+".*") // for this user alone
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Ports that are kept are drawn below those that systems give to whoever dials, so that they
// are still free at the next start.
const (
	portLeast  = 20_000
	portsCount = 12_000
	portsTried = 200
)

// freeEndpoint is an address of this machine where nobody listens, other than those taken.
func freeEndpoint(taken []string) (string, error) {
	var failed error
	for range portsTried {
		n, err := rand.Int(rand.Reader, big.NewInt(portsCount))
		if err != nil {
			return "", fmt.Errorf("draw a port: %w", err)
		}
		endpoint := net.JoinHostPort("127.0.0.1", strconv.Itoa(portLeast+int(n.Int64())))
		if slices.Contains(taken, endpoint) {
			continue
		}
		l, err := net.Listen("tcp", endpoint)
		if err != nil {
			failed = err
			continue
		}
		return endpoint, l.Close()
	}
	return "", fmt.Errorf("find a free port: %w", failed)
}
