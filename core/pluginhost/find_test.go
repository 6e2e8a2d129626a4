package pluginhost

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A plugin that was copied without its mode is told apart from one that is not
// there.
func TestPluginThatMayNotBeExecuted(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := New(Config{Dir: dir}, slog.New(slog.DiscardHandler), func(Event) {})
	if _, err := h.Probe(t.Context(), "mine"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "chmod +x") {
		t.Errorf("error %v", err)
	}
}
