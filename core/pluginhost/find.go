package pluginhost

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brokerd/brokerd/sdk/plugin"
)

// ErrNotFound says that there is no plugin of a name.
var ErrNotFound = errors.New("plugin not found")

// Found is a plugin that could be run.
type Found struct {
	Name string
	// Path is its executable, empty for one that the broker's own executable
	// serves.
	Path string
	// Pinned says that its checksum is in the configuration. It has not been
	// compared yet.
	Pinned bool
}

// List returns the plugins that can be found, by name. A file that stands before
// a built-in plugin of the same name is the one that is listed.
func (h *Host) List() ([]Found, error) {
	found := map[string]Found{}
	for name := range h.cfg.Builtin {
		found[name] = Found{Name: name}
	}
	var entries []fs.DirEntry
	if h.cfg.Dir != "" {
		var err error
		if entries, err = os.ReadDir(h.cfg.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list plugins: %w", err)
		}
	}
	for _, e := range entries {
		path := filepath.Join(h.cfg.Dir, e.Name())
		if pluginName.MatchString(e.Name()) && isExecutable(path) {
			found[e.Name()] = Found{Name: e.Name(), Path: path}
		}
	}
	out := make([]Found, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		f := found[name]
		_, f.Pinned = h.cfg.Checksums[name]
		out = append(out, f)
	}
	return out, nil
}

// isExecutable says whether path is a file, or a link to one, that may be run.
func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Probe runs a plugin for a moment and asks what it is. target is a name, or a
// path with a separator in it.
func (h *Host) Probe(ctx context.Context, target string) (plugin.Info, error) {
	cfg, err := h.find(target)
	if err != nil {
		return plugin.Info{}, err
	}
	process, err := plugin.Launch(ctx, cfg)
	if err != nil {
		return plugin.Info{}, err
	}
	defer process.Kill()
	return process.Info(ctx)
}

// find says how to launch a plugin. The error is a sentence for an operator.
func (h *Host) find(target string) (plugin.LaunchConfig, error) {
	cfg := plugin.LaunchConfig{
		Env:          h.cfg.Env,
		SocketDir:    h.cfg.SocketDir,
		Logger:       h.logger.With("plugin", target),
		StartTimeout: h.cfg.StartTimeout,
		CallTimeout:  h.cfg.CallTimeout,
	}
	if strings.ContainsRune(target, filepath.Separator) {
		cfg.Path = target
		return cfg, nil
	}
	if err := checkName(target); err != nil {
		return cfg, err
	}
	if sum, pinned := h.cfg.Checksums[target]; pinned {
		var err error
		if cfg.Checksum, err = hex.DecodeString(sum); err != nil {
			return cfg, fmt.Errorf("plugins: the checksum of %s: %w", target, err)
		}
	}
	path := filepath.Join(h.cfg.Dir, target)
	args, builtin := h.cfg.Builtin[target]
	switch {
	case h.cfg.Dir != "" && isExecutable(path):
		cfg.Path = path
	case cfg.Checksum != nil:
		return cfg, fmt.Errorf("%w: plugin %s has a pinned checksum, and there is no executable %s", ErrNotFound, target, path)
	case builtin:
		cfg.Args = args
	case h.cfg.Dir != "" && isFile(path):
		return cfg, fmt.Errorf("%w: %s is there, but may not be executed; chmod +x it", ErrNotFound, path)
	default:
		return cfg, fmt.Errorf("%w: there is no plugin %s, neither as the executable %s nor among the built-in ones (%s)",
			ErrNotFound, target, path, strings.Join(slices.Sorted(maps.Keys(h.cfg.Builtin)), ", "))
	}
	return cfg, nil
}
