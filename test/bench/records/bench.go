package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brokerd/brokerd/test/bench/load"
	"github.com/brokerd/brokerd/test/bench/peer"
	"github.com/brokerd/brokerd/test/bench/rpc"
)

// role is a server with its settings.
type role string

const (
	brokerd role = "brokerd"
	always  role = "brokerd, fsync" // its default where a partition has one replica
	kafka   role = "Kafka 4.4.0"
)

const (
	// othersMax is how many processors others may use in a counted round.
	othersMax = 0.3
	// again is how often a round is repeated because of others, in a row.
	again = 10
	// settledMax is how many processors the JVM's compiler may take when it has settled.
	settledMax = 0.05
	// warmRounds bounds the rounds before that.
	warmRounds = 20
)

var errDisturbed = errors.New("other processes used the processors")

// bench is a run: its servers are started when a row needs them, and stay.
type bench struct {
	o       options
	dir     string
	servers map[role]*started
}

type started struct {
	*peer.Server
	conn   *rpc.Conn
	topics int
}

func (b *bench) close() {
	for _, s := range b.servers {
		if s.conn != nil {
			s.conn.Close()
		}
		s.Kill()
	}
}

func (b *bench) logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// newServer makes the server of a role, in a folder of its own.
func (b *bench) newServer(ctx context.Context, r role) (*peer.Server, error) {
	dir, err := os.MkdirTemp(b.dir, "server-")
	if err != nil {
		return nil, err
	}
	if r == kafka {
		if b.o.beside != "" {
			return peer.BrokerdFrom(b.o.beside, dir, append([]string{"--flush", "interval"}, b.o.args...)...)
		}
		// Deletes a topic's files at once: they are no part of anybody's round.
		return peer.Kafka(ctx, dir, "log.segment.delete.delay.ms=100")
	}
	args := b.o.args
	if r != always {
		args = append([]string{"--flush", "interval"}, args...)
	}
	var s *peer.Server
	switch {
	case b.o.profiles != "":
		s, err = peer.BrokerdProfiled(ctx, dir, b.o.profiles, args...)
	case b.o.program != "":
		s, err = peer.BrokerdFrom(b.o.program, dir, args...)
	default:
		s, err = peer.Brokerd(ctx, dir, args...)
	}
	if err == nil {
		s.Env = b.o.env
	}
	return s, err
}

// server starts the server of a role, unless it runs.
func (b *bench) server(ctx context.Context, r role) (*started, error) {
	if s := b.servers[r]; s != nil {
		return s, nil
	}
	p, err := b.newServer(ctx, r)
	if err != nil {
		return nil, err
	}
	p.Name = string(r)
	s := &started{Server: p}
	b.servers[r] = s
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	s.conn, err = rpc.Dial(ctx, s.Addr)
	return s, err
}

// measure runs a row: one round of every side that is not counted (of a JVM as many as
// it needs to settle), and the alternations.
func (b *bench) measure(ctx context.Context, r *row) ([]*side, error) {
	var sides []*side
	for _, spec := range r.sides {
		if spec.role == kafka && !b.o.kafka && b.o.beside == "" {
			continue
		}
		s, err := b.server(ctx, spec.role)
		if err != nil {
			return nil, err
		}
		sd := &side{sideSpec: spec, server: s.Server, conn: s.conn, topics: &s.topics, values: make([][]float64, len(r.metrics))}
		sides = append(sides, sd)
		if r.once != nil {
			if err := r.once(ctx, sd); err != nil {
				return nil, fmt.Errorf("%s: %w", spec.role, err)
			}
		}
	}
	for _, s := range sides {
		if err := b.warm(ctx, r, s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.role, err)
		}
	}
	end, err := b.profile(r, sides)
	if err != nil {
		return nil, err
	}
	for n := range b.o.rounds {
		for _, s := range sides {
			if err := b.counted(ctx, r, s, n); err != nil {
				return nil, fmt.Errorf("%s: %w", s.role, err)
			}
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	if r.once != nil {
		for _, s := range sides {
			if err := s.deleteTopic(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", s.role, err)
			}
		}
	}
	return sides, nil
}

// profile begins the profiles of the sides that are built for it.
func (b *bench) profile(r *row, sides []*side) (end func() error, err error) {
	if b.o.profiles == "" {
		return func() error { return nil }, nil
	}
	var ends []func() ([]string, error)
	for i, s := range sides {
		if s.role == kafka {
			continue
		}
		end, err := s.server.Profile(fmt.Sprintf("%s-%d", r.name, i))
		if err != nil {
			return nil, err
		}
		ends = append(ends, end)
	}
	return func() error {
		for _, end := range ends {
			files, err := end()
			if err != nil {
				return err
			}
			b.logf("wrote %s", strings.Join(files, " "))
		}
		return nil
	}, nil
}

// warm runs rounds that are not counted.
func (b *bench) warm(ctx context.Context, r *row, s *side) error {
	for n := range warmRounds {
		d, err := b.round(ctx, r, s)
		if err != nil {
			return err
		}
		b.tell(r, s, fmt.Sprintf("round 0.%d", n), d)
		if d.compiling < settledMax {
			break
		}
	}
	return nil
}

// counted runs a round that counts, again where others disturbed it.
func (b *bench) counted(ctx context.Context, r *row, s *side, n int) error {
	for try := 0; ; try++ {
		d, err := b.round(ctx, r, s)
		if err != nil {
			return err
		}
		b.tell(r, s, fmt.Sprintf("round %d", n+1), d)
		if d.others > othersMax && !b.o.force {
			if try == again {
				return fmt.Errorf("%w: %.1f of them, %d times: nothing is reported (-force: for a look)", errDisturbed, d.others, again)
			}
			b.logf("  %.2f processors were used by others: again", d.others)
			continue
		}
		for i, m := range r.metrics {
			s.values[i] = append(s.values[i], m.of(d.measured))
		}
		s.compiling = append(s.compiling, d.compiling)
		return nil
	}
}

func (b *bench) tell(r *row, s *side, what string, d disturbed) {
	var text []string
	for _, m := range r.metrics {
		text = append(text, number(m.of(d.measured))+" "+m.name)
	}
	b.logf("%s: %s %s: %s (%.1fs, others %.2f, stolen %.2f, JIT %.2f)", r.name, s.role, what, strings.Join(text, "; "), d.Elapsed.Seconds(), d.others, d.stolen, d.compiling)
}

// disturbed is a round with what went on beside it, in processors.
type disturbed struct {
	measured
	others, stolen, compiling float64
}

func (b *bench) round(ctx context.Context, r *row, s *side) (d disturbed, err error) {
	if r.before != nil {
		if err := r.before(ctx, s); err != nil {
			return d, err
		}
	}
	from, err := b.look(s)
	if err != nil {
		return d, err
	}
	if d.Result, err = r.run(ctx, s); err != nil {
		return d, err
	}
	to, err := b.look(s)
	if err != nil {
		return d, err
	}
	d.cpu, d.rss, d.rssBefore = to.usage.CPU-from.usage.CPU, to.usage.RSS, from.usage.RSS
	d.others, d.stolen = peer.Others(from.moment, to.moment, os.Getpid()), peer.Stolen(from.moment, to.moment)
	d.compiling = (to.compiling - from.compiling).Seconds() / to.at.Sub(from.at).Seconds()
	if r.after != nil {
		return d, r.after(ctx, s)
	}
	return d, nil
}

// seen is what is known at one moment.
type seen struct {
	at        time.Time
	moment    peer.Moment
	usage     peer.Usage
	compiling time.Duration
}

func (b *bench) look(s *side) (l seen, err error) {
	l.at = time.Now()
	if l.moment, err = peer.Now(); err != nil {
		return l, err
	}
	if l.usage, err = s.server.Usage(); err != nil {
		return l, err
	}
	l.compiling, err = s.server.Compiling()
	return l, err
}

// warmMemory writes a file and deletes it, so that the pages that the servers' logs will
// take are the machine's already.
func (b *bench) warmMemory() error {
	if b.o.warm == 0 {
		return nil
	}
	b.logf("write and delete %d MiB", b.o.warm>>20)
	path := filepath.Join(b.dir, "warm")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer f.Close()
	piece := load.Value(4<<20, 0)
	for n := int64(0); n < b.o.warm; n += int64(len(piece)) {
		if _, err := f.Write(piece); err != nil {
			return fmt.Errorf("warm the machine's memory: %w", err)
		}
	}
	return nil
}
