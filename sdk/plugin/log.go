package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
)

// The keys of a log line between plugin and broker.
const (
	lineLevel   = "@level"
	lineMessage = "@message"
	lineTime    = "@timestamp"
	lineModule  = "@module"

	lineTimeFormat = "2006-01-02T15:04:05.000000Z07:00"
)

// lineBytesMax bounds a line; a longer one is forwarded in pieces.
const lineBytesMax = 16 << 10

// NewLogger makes a logger whose lines the broker understands, so that they
// appear in its log with their level and attributes. A plugin gives it the
// standard error that it was started with. A nil level means debug: the broker
// filters.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	if level == nil {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.TimeKey:
				return slog.String(lineTime, a.Value.Time().Format(lineTimeFormat))
			case slog.LevelKey:
				return slog.String(lineLevel, strings.ToLower(a.Value.String()))
			case slog.MessageKey:
				return slog.Attr{Key: lineMessage, Value: a.Value}
			}
			return a
		},
	}))
}

// forwarder is a writer that puts a plugin's lines into the broker's log.
type forwarder struct {
	logger *slog.Logger
	plain  slog.Level // of lines that are not JSON

	mu   sync.Mutex
	part []byte // a line without its end yet
	last string // the last line, for the report of a failed start
}

// Write takes bytes of a plugin's output. It never fails.
func (f *forwarder) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		room := lineBytesMax - len(f.part)
		if len(line) > room {
			line, rest, whole = line[:room], p[room:], true
		}
		f.part = append(f.part, line...)
		p = rest
		if whole {
			f.line(f.part)
			f.part = f.part[:0]
		}
	}
	return n, nil
}

// close forwards what was left without an end.
func (f *forwarder) close() {
	if len(f.part) > 0 {
		f.line(f.part)
		f.part = nil
	}
}

// lastLine returns the last line that was not empty.
func (f *forwarder) lastLine() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *forwarder) line(b []byte) {
	text := strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
	if text == "" {
		return
	}
	level, message, attrs := parseLine(text, f.plain)
	f.mu.Lock()
	f.last = message
	f.mu.Unlock()
	f.logger.LogAttrs(context.Background(), level, message, attrs...)
}

// parseLine reads a JSON line of the keys above; any other line is a message of
// the level given.
func parseLine(text string, plain slog.Level) (slog.Level, string, []slog.Attr) {
	var fields map[string]json.RawMessage
	if text[0] != '{' || json.Unmarshal([]byte(text), &fields) != nil {
		return plain, text, nil
	}
	var message, levelName string
	if json.Unmarshal(fields[lineMessage], &message) != nil {
		return plain, text, nil
	}
	level := plain
	if json.Unmarshal(fields[lineLevel], &levelName) == nil {
		level = parseLevel(levelName, plain)
	}
	for _, key := range []string{lineMessage, lineLevel, lineTime, lineModule} {
		delete(fields, key)
	}
	attrs := make([]slog.Attr, 0, len(fields))
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if string(fields[key]) == "null" {
			continue // an error that there was not
		}
		var s string
		if json.Unmarshal(fields[key], &s) != nil {
			s = string(fields[key])
		}
		attrs = append(attrs, slog.String(key, s))
	}
	return level, message, attrs
}

func parseLevel(name string, plain slog.Level) slog.Level {
	switch strings.ToLower(name) {
	case "trace", "debug":
		return slog.LevelDebug
	case "info":
		return slog.LevelInfo
	case "warn", "warning":
		return slog.LevelWarn
	case "error", "fatal", "critical":
		return slog.LevelError
	}
	return plain
}
