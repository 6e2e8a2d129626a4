package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/bench/peer"
)

const (
	// othersMax is how many processors others may use in a counted round.
	othersMax = 0.3
	// again is how often in a row a round is repeated because of others.
	again = 10
	// settledMax is how many processors the JVM's compiler may take when it has settled.
	settledMax = 0.05
	// warmRounds bounds the rounds before that.
	warmRounds = 20
)

var errDisturbed = errors.New("other processes used the processors")

// measure runs a row: one round of every side that is not counted (of a JVM as many as
// it needs to settle), and the alternations.
func (b *bench) measure(ctx context.Context, r *row) ([]*side, error) {
	var sides []*side
	for _, spec := range r.specs(b.o) {
		s, err := b.side(ctx, r, spec)
		if s != nil {
			sides = append(sides, s)
			if r.fresh {
				defer func() { s.close() }() // of the server that it has by then
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spec.role, err)
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
	for _, s := range sides {
		if r.last == nil {
			break
		}
		if err := r.last(ctx, s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.role, err)
		}
	}
	return sides, nil
}

// specs are the sides of a row in a run.
func (r *row) specs(o options) []sideSpec {
	var out []sideSpec
	for _, spec := range r.sides {
		if spec.role != kafka || o.kafka || o.beside != "" {
			out = append(out, spec)
		}
	}
	if o.nats && r.nats != nil {
		out = append(out, r.nats.sideSpec)
	}
	if o.bare && r.bare != nil {
		out = append(out, *r.bare)
	}
	for i := range out {
		if out[i].once == nil {
			out[i].once = r.once
		}
		if out[i].run == nil {
			out[i].run = r.run
		}
	}
	return out
}

// side makes a side ready for its rounds.
func (b *bench) side(ctx context.Context, r *row, spec sideSpec) (*side, error) {
	s := &side{sideSpec: spec, values: make([][]float64, len(r.metrics))}
	var err error
	if r.fresh {
		s.started, err = b.newServer(ctx, spec.role)
	} else {
		s.started, err = b.server(ctx, spec.role)
	}
	if err != nil {
		return nil, err
	}
	if s.once != nil {
		err = s.once(ctx, b, s)
	}
	return s, err
}

// profile begins the profiles of the sides that are built for it.
func (b *bench) profile(r *row, sides []*side) (end func() error, err error) {
	if b.o.profiles == "" || r.fresh {
		return func() error { return nil }, nil
	}
	var ends []func() ([]string, error)
	for i, s := range sides {
		if s.Profiles == "" {
			continue
		}
		end, err := s.Profile(fmt.Sprintf("%s-%d", r.name, i))
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
		b.tell(r, s, "not counted", d)
		if d.compiling < settledMax || r.cold || n == warmRounds-1 || b.look() {
			break
		}
	}
	return nil
}

// look reports whether it is only for a look: a JVM is not waited for then.
func (b *bench) look() bool { return b.o.force && b.o.rounds == 1 }

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
				return fmt.Errorf("%w: %.1f of them, and before, %d times: nothing is reported (-force: for a look)", errDisturbed, d.others, again)
			}
			continue
		}
		for i, m := range r.metrics {
			s.values[i] = append(s.values[i], m.of(d.measured))
		}
		return nil
	}
}

// tell says what a round came to, as it comes.
func (b *bench) tell(r *row, s *side, what string, d disturbed) {
	var text []string
	for _, m := range r.metrics {
		text = append(text, digits(m.of(d.measured))+" "+m.name)
	}
	name := string(s.role)
	if s.label != "" {
		name = s.label
	}
	b.logf("%s: %s %s: %s (%.1f s; processors used by the server %.2f, the client %.2f, others %.2f, other machines %.2f, a JVM's compiler %.2f)",
		r.name, name, what, strings.Join(text, "; "), d.Elapsed.Seconds(), d.server, d.client, d.others, d.stolen, d.compiling)
}

// disturbed is a round with what went on beside it, in processors.
type disturbed struct {
	measured
	server, client, others, stolen, compiling float64
}

func (b *bench) round(ctx context.Context, r *row, s *side) (d disturbed, err error) {
	if r.before != nil {
		if err := r.before(ctx, b, s); err != nil {
			return d, err
		}
	}
	from, err := look(s)
	if err != nil {
		return d, err
	}
	s.begin = func() (err error) {
		from, err = look(s)
		return err
	}
	if d.measured, err = s.run(ctx, s); err != nil {
		return d, err
	}
	to, err := look(s)
	if err != nil {
		return d, err
	}
	d.cpu = to.usage.CPU - from.usage.CPU
	if d.rss == 0 {
		d.rss = to.usage.RSS
	}
	d.others, d.stolen = peer.Others(from.moment, to.moment, os.Getpid()), peer.Stolen(from.moment, to.moment)
	took := to.at.Sub(from.at).Seconds()
	d.server, d.client, d.compiling = d.cpu.Seconds()/took, (to.own-from.own).Seconds()/took, (to.compiling-from.compiling).Seconds()/took
	if r.after != nil {
		return d, r.after(ctx, s)
	}
	return d, nil
}

// seen is what is known at one moment.
type seen struct {
	at        time.Time
	moment    peer.Moment
	own       time.Duration // of this process and programs that it waited for
	usage     peer.Usage
	compiling time.Duration
}

func look(s *side) (l seen, err error) {
	l.at = time.Now()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var own syscall.Rusage
		if err := syscall.Getrusage(who, &own); err != nil {
			return l, err
		}
		l.own += time.Duration(own.Utime.Nano() + own.Stime.Nano())
	}
	if l.moment, err = peer.Now(); err != nil || !s.Running() {
		return l, err
	}
	if l.usage, err = s.Usage(); err != nil {
		return l, err
	}
	l.compiling, err = s.Compiling()
	return l, err
}
