package processes

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestStateIsKept(t *testing.T) {
	data := filepath.Join(t.TempDir(), "d")
	if _, there, err := Kept(data); there || err != nil {
		t.Fatalf("before anything was: %t, %v", there, err)
	}
	var s State
	if err := s.Grow(3); err != nil {
		t.Fatal(err)
	}
	for i, e := range s.Endpoints {
		if host, _, err := net.SplitHostPort(e); err != nil || host != "127.0.0.1" || slices.Contains(s.Endpoints[i+1:], e) {
			t.Errorf("endpoints %v", s.Endpoints)
		}
	}
	s.Founded = true
	if err := s.Save(data); err != nil {
		t.Fatal(err)
	}
	again, there, err := Kept(data)
	if err != nil || !there || !again.Founded || !slices.Equal(again.Endpoints, s.Endpoints) {
		t.Errorf("kept %+v, %t, %v; want %+v", again, there, err, s)
	}
	if err := again.Grow(4); err != nil || !slices.Equal(again.Endpoints[:3], s.Endpoints) || len(again.Endpoints) != 4 {
		t.Errorf("grown to %+v, %v", again, err)
	}
	path := filepath.Join(data, ownDir, stateName)
	for _, bad := range []string{"", "{", `{"version":2,"endpoints":["a:1"]}`, `{"version":1}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Kept(data); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q was taken: %v", bad, err)
		}
	}
}

func TestSecretIsDrawnOnceAndPrivate(t *testing.T) {
	data := t.TempDir()
	path, err := Secret(data)
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(path)
	if err != nil || len(first) < 40 {
		t.Fatalf("a secret of %d bytes, %v", len(first), err)
	}
	for _, p := range []string{path, filepath.Dir(path)} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others may read %s: %v", p, err)
		}
	}
	if _, err := Secret(data); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(first) {
		t.Errorf("the secret is another one: %v", err)
	}
	other, err := Secret(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(other); err != nil || string(content) == string(first) {
		t.Errorf("two have the same secret: %v", err)
	}
}
