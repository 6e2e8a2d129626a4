package broker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/quorum"
)

// A start that fails after one store took the proposed identity is tried again
// with the same one, or that store would refuse it.
func TestProposalOutlivesAFailedStart(t *testing.T) {
	dir := t.TempDir()
	stores := config.Override{Name: "storage.stores", Value: "{main: {plugin: memstore}, other: {plugin: nosuch}}"}
	b := newBroker(t, settings(t, dir, stores))
	if err := b.Run(t.Context()); err == nil {
		t.Fatal("it started")
	}
	proposed, err := os.ReadFile(filepath.Join(dir, foundingName))
	if err != nil {
		t.Fatalf("the identity that main took is forgotten: %v", err)
	}
	if _, err := os.Stat(quorum.Database(b.quorumDir())); err == nil {
		t.Error("a cluster was created")
	}
	again := start(t, settings(t, dir))
	if got := again.now.Load().quorum.Identity().ClusterID; string(got) != strings.TrimSpace(string(proposed)) {
		t.Errorf("created %s, proposed was %s", got, proposed)
	}
	if _, err := os.Stat(filepath.Join(dir, foundingName)); err == nil {
		t.Error("the proposal is still there")
	}
}

// A proposal that a killed start left must not outlive the cluster: with it, a
// lost quorum.db would be made anew under the stores' own identity.
func TestStaleProposalIsRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := start(t, settings(t, dir)).stop(); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(dir, foundingName)
	if err := os.WriteFile(stale, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, settings(t, dir))
	if _, err := os.Stat(stale); err == nil {
		t.Error("the proposal is still there")
	}
}
