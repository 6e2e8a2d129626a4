package quorum

import (
	"context"
	"fmt"
	"log/slog"
)

// raftLogger gives Raft's own messages to slog. What Raft calls information is
// of interest to who debugs it; a panic of Raft is a broken invariant.
type raftLogger struct{ log *slog.Logger }

func (l raftLogger) print(level slog.Level, message func() string) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "raft: "+message())
	}
}

func (l raftLogger) Debug(v ...any) {
	l.print(slog.LevelDebug, func() string { return fmt.Sprint(v...) })
}
func (l raftLogger) Info(v ...any) {
	l.print(slog.LevelDebug, func() string { return fmt.Sprint(v...) })
}
func (l raftLogger) Warning(v ...any) {
	l.print(slog.LevelWarn, func() string { return fmt.Sprint(v...) })
}
func (l raftLogger) Error(v ...any) {
	l.print(slog.LevelError, func() string { return fmt.Sprint(v...) })
}

func (l raftLogger) Debugf(format string, v ...any) {
	l.print(slog.LevelDebug, func() string { return fmt.Sprintf(format, v...) })
}
func (l raftLogger) Infof(format string, v ...any) {
	l.print(slog.LevelDebug, func() string { return fmt.Sprintf(format, v...) })
}
func (l raftLogger) Warningf(format string, v ...any) {
	l.print(slog.LevelWarn, func() string { return fmt.Sprintf(format, v...) })
}
func (l raftLogger) Errorf(format string, v ...any) {
	l.print(slog.LevelError, func() string { return fmt.Sprintf(format, v...) })
}

func (l raftLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l raftLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
