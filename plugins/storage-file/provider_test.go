package storagefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		json, wrong string
	}{
		{`{"path":"/x"}`, ""},
		{`{"path":"/x","reserve":"8MiB","segment_bytes":1048576,"segment_age":"30s","index_interval":"1KiB","runners":2,"syncers":3,"boot_id":"b"}`, ""},
		{`{}`, "path is missing"},
		{``, "path is missing"},
		{`{"path":"/x","colour":"red"}`, "colour"},
		{`{"path":"/x","reserve":"8 bananas"}`, "8 bananas"},
		{`{"path":"/x","reserve":-1}`, "reserve is negative"},
		{`{"path":"/x","reserve":"9999999999TiB"}`, "is not a size"},
		{`{"path":"/x","segment_bytes":"4GiB"}`, "segment_bytes"},
		{`{"path":"/x","segment_bytes":0}`, "segment_bytes"},
		{`{"path":"/x","segment_age":"7 days"}`, "7 days"},
		{`{"path":"/x","segment_age":"0s"}`, "segment_age"},
		{`{"path":"/x","index_interval":0}`, "index_interval"},
		{`{"path":"/x","runners":0}`, "runners"},
		{`{"path":"/x","syncers":100000}`, "syncers"},
		{`[]`, "settings of storage-file"},
	} {
		_, err := parseSettings([]byte(c.json))
		if c.wrong == "" && err != nil || c.wrong != "" && (!errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v", c.json, err)
		}
	}
	s, err := parseSettings([]byte(`{"path":"/x","reserve":"8MiB","segment_age":"30s"}`))
	if err != nil || s.Reserve != 8<<20 || time.Duration(s.SegmentAge) != 30*time.Second || s.SegmentBytes != 1<<30 {
		t.Errorf("settings %+v, %v", s, err)
	}
}

// The settings that are described are those that are taken.
func TestSettingsAreDescribed(t *testing.T) {
	for _, s := range Provider().Info().Settings {
		_, err := parseSettings(fmt.Appendf(nil, `{"path":"/x",%q:null}`, s.Name))
		if err != nil && strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%s is described but not taken", s.Name)
		}
	}
}

// A second opener, and one of another broker, are told what to do (FR-77).
func TestStoreIsRefused(t *testing.T) {
	dir := t.TempDir() + "/store"
	ctx := context.Background()
	p := &provider{fs: vfs.OS{}, now: time.Now}
	store, id, err := p.Open(ctx, config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if id != config(dir).ProposedDirectoryID {
		t.Errorf("directory id %x", id)
	}
	_, _, err = p.Open(ctx, config(dir))
	if !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("second opener: %v", err)
	}
	if err := store.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	for _, other := range []storage.Identity{{ClusterID: "other", NodeID: 1}, {ClusterID: "conformance", NodeID: 2}} {
		cfg := config(dir)
		cfg.Identity = other
		if _, _, err := p.Open(ctx, cfg); !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "belongs to node 1") {
			t.Errorf("opener of %+v: %v", other, err)
		}
	}
	cfg := config(dir)
	cfg.ProposedDirectoryID = storage.DirectoryID{9}
	store, id, err = p.Open(ctx, cfg)
	if err != nil || id != config(dir).ProposedDirectoryID {
		t.Fatalf("directory id %x, %v", id, err)
	}
	if err := store.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir + "/identity"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/something", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Open(ctx, cfg); !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "something") {
		t.Errorf("opener of a foreign directory: %v", err)
	}
	if _, _, err := p.Open(ctx, config(dir+"/no/parent")); err == nil {
		t.Error("made a store below a directory that is not there")
	}
}
