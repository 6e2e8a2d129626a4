package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// The functions below are hooks for stores that keep batches as they are in
// files under one directory.

// OverwriteInFiles overwrites the stored copy of batch in the files under root;
// see Backing.Overwrite.
func OverwriteInFiles(root string, batch []byte, at int, with []byte) error {
	path, offset, err := findInFiles(root, batch)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("overwrite a batch: %w", err)
	}
	_, err = file.WriteAt(with, offset+int64(at))
	return errors.Join(err, file.Close())
}

// TearInFiles cuts the file under root that holds batch after the batch's first
// keep bytes, and removes the files of the same directory and extension whose
// names sort behind it; see Backing.Tear.
func TearInFiles(root string, batch []byte, keep int) error {
	path, offset, err := findInFiles(root, batch)
	if err != nil {
		return err
	}
	if err := os.Truncate(path, offset+int64(keep)); err != nil {
		return fmt.Errorf("tear a batch: %w", err)
	}
	siblings, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"+filepath.Ext(path)))
	if err != nil {
		return fmt.Errorf("tear a batch: %w", err)
	}
	for _, sibling := range siblings {
		if sibling > path {
			if err := os.Remove(sibling); err != nil {
				return fmt.Errorf("remove what follows a torn batch: %w", err)
			}
		}
	}
	return nil
}

// DamageFiles spoils the files under root that derived chooses, as seed
// decides: some are removed, some cut short, some filled with garbage, some
// left; see Backing.DamageDerived.
func DamageFiles(root string, derived func(path string) bool, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	return eachFile(root, func(path string) error {
		if !derived(path) {
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		switch rng.IntN(4) {
		case 0:
			return os.Remove(path)
		case 1:
			return os.Truncate(path, rng.Int64N(info.Size()+1))
		case 2:
			garbage := make([]byte, rng.Int64N(info.Size()+100))
			for i := range garbage {
				garbage[i] = byte(rng.Uint32())
			}
			return os.WriteFile(path, garbage, info.Mode())
		}
		return nil
	})
}

// findInFiles returns the file that holds the bytes, and where.
func findInFiles(root string, batch []byte) (path string, offset int64, err error) {
	err = eachFile(root, func(candidate string) error {
		data, err := os.ReadFile(candidate)
		if err != nil {
			return err
		}
		if i := bytes.Index(data, batch); i >= 0 {
			path, offset = candidate, int64(i)
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && path == "" {
		err = fmt.Errorf("no file under %s holds the batch", root)
	}
	return path, offset, err
}

// eachFile visits the regular files under root, in the order of their names.
func eachFile(root string, visit func(path string) error) error {
	var paths []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list the files of a store: %w", err)
	}
	slices.Sort(paths)
	for _, path := range paths {
		if err := visit(path); errors.Is(err, fs.SkipAll) {
			return nil
		} else if err != nil {
			return fmt.Errorf("visit the files of a store: %w", err)
		}
	}
	return nil
}
