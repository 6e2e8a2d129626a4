package mutant

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Mutation is a deliberate fault of the code under test: one place of one file, changed.
type Mutation struct {
	Name string
	File string // below the root of the module
	Old  string // stands there once
	New  string
}

// Overlay writes the file for -overlay of the go command that puts the mutated file in
// place of the real one, and returns its path. It is there until the test ends.
func (m Mutation) Overlay(t *testing.T, root string) string {
	t.Helper()
	path := filepath.Join(root, m.File)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.Old); n != 1 {
		t.Fatalf("%s has the place %d times, want once: the code has changed, and the mutation must follow", m.File, n)
	}
	dir := t.TempDir()
	mutated := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(source), m.Old, m.New, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	return list
}
