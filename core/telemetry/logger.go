package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// NewLogger makes the broker's logger. Level is debug, info, warn or error;
// format is text or json. The keys topic, partition, leader_epoch, broker,
// plugin and err mean the same in every line.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var at slog.Level
	if err := at.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q is not one of debug, info, warn, error", level)
	}
	opts := &slog.HandlerOptions{Level: at}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("log format %q is neither text nor json", format)
}
