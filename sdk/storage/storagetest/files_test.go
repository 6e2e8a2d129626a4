package storagetest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func wantFiles(t *testing.T, root string, want map[string]string) {
	t.Helper()
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(root, name))
		if content == "" && os.IsNotExist(err) {
			continue
		}
		if err != nil || string(got) != content {
			t.Errorf("%s holds %q (%v); want %q", name, got, err, content)
		}
	}
}

func TestDamageInFiles(t *testing.T) {
	files := map[string]string{
		"a/0.log": "one two", "a/1.log": "three four five", "a/2.log": "six", "a/1.index": "index", "b/0.log": "seven",
	}
	root := writeFiles(t, files)
	if err := storagetest.OverwriteInFiles(root, []byte("four"), 1, []byte("AX")); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, root, map[string]string{"a/0.log": "one two", "a/1.log": "three fAXr five"})
	if err := storagetest.OverwriteInFiles(root, []byte("four"), 1, []byte("AX")); err == nil {
		t.Error("a batch that is nowhere was overwritten")
	}
	if err := storagetest.TearInFiles(root, []byte("fAXr"), 2); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, root, map[string]string{
		"a/0.log": "one two", "a/1.log": "three fA", "a/2.log": "", "a/1.index": "index", "b/0.log": "seven",
	})
}

func TestDamageFilesSparesTheRest(t *testing.T) {
	damaged := false
	for seed := range uint64(10) {
		files := map[string]string{"0.log": "log", "0.index": "an index of some length", "1.index": "another"}
		root := writeFiles(t, files)
		err := storagetest.DamageFiles(root, func(path string) bool { return strings.HasSuffix(path, ".index") }, seed)
		if err != nil {
			t.Fatal(err)
		}
		wantFiles(t, root, map[string]string{"0.log": "log"})
		if got, err := os.ReadFile(filepath.Join(root, "0.index")); err != nil || string(got) != files["0.index"] {
			damaged = true
		}
	}
	if !damaged {
		t.Error("nothing was ever damaged")
	}
}
