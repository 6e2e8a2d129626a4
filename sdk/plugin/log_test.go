package plugin

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// What a plugin's logger writes, the broker's says with the same level and the
// same attributes, but for an error that there was not.
func TestLoggedLinesKeepLevelAndAttributes(t *testing.T) {
	var wire, out bytes.Buffer
	log := NewLogger(&wire, nil)
	log.Debug("one")
	log.Info("two", "partition", 3)
	log.Warn("three", "path", "/a b", "err", error(nil))
	log.Error("four", "err", errors.New("no luck"))
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	f := &forwarder{logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: plain}))}
	if _, err := f.Write(wire.Bytes()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`level=DEBUG msg=one`, `level=INFO msg=two partition=3`, `level=WARN msg=three path="/a b"`, `level=ERROR msg=four err="no luck"`, ``,
	}
	if got := strings.Split(out.String(), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", out.String())
	}
}
