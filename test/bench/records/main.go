package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/brokerd/brokerd/test/bench/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // the servers end too
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "records:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "brokerd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := load.NewPrograms(dir)
	all := rows(o, p)
	if o.list {
		for _, r := range all {
			fmt.Printf("%-24s %s\n", r.name, r.title)
		}
		return nil
	}
	chosen, err := choose(all, o.rows)
	if err != nil {
		return err
	}
	if err := install(ctx, o, p); err != nil {
		return err
	}
	b := &bench{o: o, dir: dir, servers: make(map[role]*started), built: make(map[string]string)}
	defer b.close()
	if err := b.warmMemory(); err != nil {
		return err
	}
	out := newReport(o, args)
	for i := range chosen {
		sides, err := b.measure(ctx, &chosen[i])
		if err != nil {
			return fmt.Errorf("%s: %w", chosen[i].name, err)
		}
		out.add(&chosen[i], sides)
	}
	fmt.Print(out.text())
	return nil
}

// install makes the clients ready that are programs of their own.
func install(ctx context.Context, o options, p *load.Programs) error {
	if slices.Contains(o.clients, librdkafka) {
		if err := p.Librdkafka(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(o.clients, java) {
		return p.Java(ctx)
	}
	return nil
}

// choose takes the named rows, or those whose names begin so, or all.
func choose(all []row, names []string) ([]row, error) {
	if len(names) == 0 {
		return all, nil
	}
	var out []row
	for _, name := range names {
		n := len(out)
		for _, r := range all {
			if r.name == name {
				out = append(out[:n], r)
				break
			}
			if strings.HasPrefix(r.name, name+"-") {
				out = append(out, r)
			}
		}
		if n == len(out) {
			return nil, fmt.Errorf("there is no row %q; -list prints them", name)
		}
	}
	return out, nil
}
