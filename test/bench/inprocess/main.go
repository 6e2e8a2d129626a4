package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/telemetry"
	storagefile "github.com/brokerd/brokerd/plugins/storage-file"
	"github.com/brokerd/brokerd/sdk/storage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "inprocess:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	overrides, err := parse(args)
	if err != nil {
		return err
	}
	cfg, err := config.Load(config.Sources{Environment: os.Environ(), Overrides: overrides})
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(os.Stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	// As brokerd does; the store needs some of it here.
	const own, wasteShare = 64 << 20, 32
	debug.SetMemoryLimit(cfg.Memory + own)
	ctx, end := context.WithCancel(ctx)
	paced := make(chan struct{})
	go func() {
		defer close(paced)
		memory.Pace(ctx, cfg.Memory/wasteShare)
	}()
	defer func() { end(); <-paced }()
	p := storagefile.Provider()
	b, err := broker.New(cfg, broker.Deps{Logger: log, Version: "inprocess", Inside: map[string]storage.Provider{p.Info().Name: p}})
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

// parse reads `dev` and its flags.
func parse(args []string) ([]config.Override, error) {
	var out []config.Override
	set := func(name, value string) { out = append(out, config.Override{Name: name, Value: value}) }
	set("group.initial.rebalance.delay.ms", "0") // as dev does
	f := flag.NewFlagSet("dev", flag.ContinueOnError)
	data := f.String("data", config.Default().Data, "directory of all that the broker keeps")
	port := f.Int("port", 9092, "port of the Kafka protocol")
	flush := f.String("flush", string(config.FlushReplicated), "what an acknowledgement waits for")
	f.Func("set", "any other setting, as name=value (repeatable)", func(pair string) error {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("%s has no =", pair)
		}
		set(name, value)
		return nil
	})
	if len(args) == 0 || args[0] != "dev" {
		return nil, fmt.Errorf("the first argument is dev")
	}
	if err := f.Parse(args[1:]); err != nil {
		return nil, err
	}
	set("data", *data)
	set("flush", *flush)
	set("listeners", "PLAINTEXT://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(*port)))
	return out, nil
}
