package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/core/config"
)

// Linux's file systems in which nobody makes directories, by statfs(2).
const (
	procMagic  = 0x9fa0
	sysfsMagic = 0x62656572
)

// checkData looks whether the data directory can be written to, or made.
func checkData(c config.Loaded) error {
	dir, err := filepath.Abs(c.Data)
	if err != nil {
		return fmt.Errorf("find the data directory: %w", err)
	}
	return checkMakeable(dir)
}

// checkStorePath looks whether a built-in store's directory can be written to, or
// made in its parent. Of other settings, and of paths that are not known here, it
// says nothing.
func checkStorePath(c config.Loaded, store config.Store) error {
	section, err := c.ResolveReferences(store.Config)
	if err != nil {
		return nil // told of as a warning
	}
	var settings struct{ Path string }
	if err := json.Unmarshal(section, &settings); err != nil || settings.Path == "" {
		return nil // the plugin's to judge
	}
	path, err := filepath.Abs(settings.Path)
	if err != nil {
		return fmt.Errorf("find its path: %w", err)
	}
	data, err := filepath.Abs(c.Data)
	if err != nil {
		return fmt.Errorf("find the data directory: %w", err)
	}
	parent := filepath.Dir(path)
	if parent == data {
		return checkMakeable(path) // the broker makes that parent
	}
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no directory %s to make %s in", parent, filepath.Base(path))
	}
	return checkMakeable(path)
}

// checkMakeable says why dir, an absolute path, is no directory that can be written
// to, nor one that can be made with all its parents. It makes nothing.
func checkMakeable(dir string) error {
	at := dir
	for {
		info, err := os.Stat(at)
		switch {
		case err == nil && !info.IsDir(), errors.Is(err, unix.ENOTDIR):
			return fmt.Errorf("%s cannot be made or used: %s is not a directory", dir, at)
		case err == nil:
			return checkWritable(dir, at)
		case !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at):
			return fmt.Errorf("%s cannot be looked for: %w", dir, err)
		}
		at = filepath.Dir(at)
	}
}

// checkWritable looks at the nearest directory above dir, or dir itself.
func checkWritable(dir, at string) error {
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s cannot be made or used: writing to %s: %w", dir, at, err)
	}
	var system unix.Statfs_t
	if err := unix.Statfs(at, &system); err != nil {
		return nil // then it is not known
	}
	switch system.Type {
	case procMagic, sysfsMagic:
		return fmt.Errorf("%s cannot be made or used: %s is the kernel's, and holds no files of others", dir, at)
	}
	return nil
}
