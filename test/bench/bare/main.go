package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

// run takes those flags of `brokerd dev` that every server is started with.
func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("dev", flag.ContinueOnError)
	data := f.String("data", "", "directory of the files")
	port := f.Int("port", 9092, "port of the Kafka protocol")
	if len(args) == 0 || args[0] != "dev" {
		return errors.New("the first argument is dev")
	}
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if err := os.MkdirAll(*data, 0o755); err != nil {
		return err
	}
	config := net.ListenConfig{Control: unpaced}
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(*port)))
	if err != nil {
		return err
	}
	return newServer(*data, slog.New(slog.NewTextHandler(os.Stderr, nil))).run(ctx, l)
}

// unpaced asks for a congestion control that paces nothing, as brokerd does over
// loopback: pacing costs more than all that is to be measured here.
func unpaced(_, _ string, raw syscall.RawConn) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	const congestion = 13 // TCP_CONGESTION
	return raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, congestion, "reno") // a wish only
	})
}
