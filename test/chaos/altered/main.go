package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/telemetry"
	storagefile "github.com/brokerd/brokerd/plugins/storage-file"
	transporttcp "github.com/brokerd/brokerd/plugins/transport-tcp"
	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/transport"
)

// serveWord has the program be its store's plugin.
const serveWord = "serve"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == serveWord {
		c, err := openClock(args[1])
		if err != nil {
			return err
		}
		return plugin.ServeStorage(storagefile.ProviderAt(c.Now))
	}
	var overrides []config.Override
	flags := flag.NewFlagSet("altered", flag.ContinueOnError)
	file := flags.String("clock", "", "the file that says by how much the wall clock is wrong")
	flags.Func("set", "a setting, as name=value", func(pair string) error {
		name, value, _ := strings.Cut(pair, "=")
		overrides = append(overrides, config.Override{Flag: "--set", Name: name, Value: value})
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	loaded, err := config.Load(config.Sources{Environment: os.Environ(), Overrides: overrides})
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(os.Stderr, loaded.Log.Level, loaded.Log.Format)
	if err != nil {
		return err
	}
	path, err := filepath.Abs(*file)
	if err != nil {
		return err
	}
	c, err := openClock(path)
	if err != nil {
		return err
	}
	tcp := transporttcp.ProviderAt(c.Now)
	b, err := broker.New(loaded, broker.Deps{
		Logger: log, Version: "altered", Clock: c,
		Builtin:    map[string][]string{storagefile.Provider().Info().Name: {serveWord, path}},
		Transports: map[string]transport.Provider{tcp.Info().Name: lanes{tcp}},
	})
	if err != nil {
		return err
	}
	return b.Run(ctx)
}
