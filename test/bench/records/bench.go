package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/brokerd/brokerd/test/bench/load"
	"github.com/brokerd/brokerd/test/bench/peer"
	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/brokerd/brokerd/test/rig"
)

// role is a server with its settings.
type role string

const (
	brokerd role = "brokerd"
	always  role = "brokerd, fsync"      // its default where a partition has one replica
	inside  role = "brokerd, in process" // its store without a plugin
	kafka   role = "Kafka 4.4.0"
	nats    role = "NATS 2.15.2"
	natsAll role = "NATS 2.15.2, sync_interval: always"
	bare    role = "bare loop" // the least that a program can do
)

func (r role) isNATS() bool { return r == nats || r == natsAll }

// programs are what is built for the roles.
var programs = map[role]string{brokerd: "./cmd/brokerd", always: "./cmd/brokerd", inside: "./test/bench/inprocess", bare: "./test/bench/bare"}

// bench is a run: its servers are started when a row needs them, and stay.
type bench struct {
	o       options
	dir     string
	servers map[role]*started
	built   map[string]string // programs, by their package
}

// started is a server that runs, or will.
type started struct {
	*peer.Server
	dial   func(ctx context.Context, s *peer.Server) (conn, error)
	conn   conn
	topics int // made on it, for their names
}

// conn is what rows ask a server beside their load.
type conn interface {
	CreateTopic(ctx context.Context, name string, partitions int, settings ...string) (rpc.Topic, error)
	DeleteTopic(t rpc.Topic) error
	EndOffsets(t rpc.Topic) ([]int64, error)
	ProduceAll(ctx context.Context, t rpc.Topic, record []byte) error
	Close()
}

func dialKafka(ctx context.Context, s *peer.Server) (conn, error) {
	if n := len(s.Addrs); n > 1 {
		replicas, inSync := peer.Replicas(n)
		return rpc.DialCluster(ctx, s.Addrs, replicas, inSync)
	}
	return rpc.Dial(ctx, s.Addr)
}

func dialNATS(_ context.Context, s *peer.Server) (conn, error) { return load.DialNATS(s.Addr) }

func (s *started) connect(ctx context.Context) error {
	c, err := s.dial(ctx, s.Server)
	if err != nil {
		return err
	}
	s.conn = c
	return nil
}

func (s *started) close() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
	s.Kill()
}

func (b *bench) close() {
	for _, s := range b.servers {
		s.close()
	}
}

func (b *bench) logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// newServer makes the server of a role in a folder of its own, and starts nothing.
func (b *bench) newServer(ctx context.Context, r role) (*started, error) {
	dir, err := os.MkdirTemp(b.dir, "server-")
	if err != nil {
		return nil, err
	}
	var s *peer.Server
	switch {
	case r == kafka && b.o.beside == "":
		// Deletes a topic's files at once: they are no part of anybody's round.
		s, err = peer.Kafka(ctx, dir, b.o.brokers, "log.segment.delete.delay.ms=100")
	case r == kafka:
		s, err = peer.BrokerdCluster(b.o.beside, dir, b.o.brokers, b.arguments(brokerd)...)
	case r == nats:
		s, err = peer.NATS(ctx, dir)
	case r == natsAll:
		s, err = peer.NATS(ctx, dir, "sync_interval: always")
	default:
		s, err = b.newBuilt(ctx, r, dir)
	}
	if err != nil {
		return nil, err
	}
	s.Name = string(r)
	dial := dialKafka
	if r.isNATS() {
		dial = dialNATS
	}
	return &started{Server: s, dial: dial}, nil
}

// arguments are brokerd's: of one broker, whose default is an fsync, and of several, whose
// default is none while a partition has replicas.
func (b *bench) arguments(r role) []string {
	several := b.o.brokers > 1
	var args []string
	switch {
	case r == bare:
		return nil
	case several && r == always:
		args = []string{"--flush", "always"}
	case !several && r != always:
		args = []string{"--flush", "interval"}
	}
	if several && !b.o.secret {
		args = append(args, "--set", `transport.config={"security":"plaintext"}`)
	}
	return append(args, b.o.args...)
}

// newBuilt makes a server of a program of this tree.
func (b *bench) newBuilt(ctx context.Context, r role, dir string) (*peer.Server, error) {
	program, err := b.program(ctx, programs[r])
	if err != nil {
		return nil, err
	}
	s, err := peer.BrokerdCluster(program, dir, b.o.brokers, b.arguments(r)...)
	if err == nil {
		s.Env, s.Profiles = b.o.env, b.o.profiles
	}
	return s, err
}

// program is the built program of a package.
func (b *bench) program(ctx context.Context, pkg string) (string, error) {
	if b.o.program != "" && pkg == programs[brokerd] {
		return b.o.program, nil
	}
	path := filepath.Join(b.dir, filepath.Base(pkg))
	if b.built[pkg] != "" {
		return path, nil
	}
	b.built[pkg] = path
	if b.o.profiles != "" {
		return path, peer.BuildProfiled(ctx, path, pkg, b.o.profiles)
	}
	return path, rig.Build(ctx, "", path, pkg)
}

// server starts the server of a role, unless it runs.
func (b *bench) server(ctx context.Context, r role) (*started, error) {
	if s := b.servers[r]; s != nil {
		return s, nil
	}
	s, err := b.newServer(ctx, r)
	if err != nil {
		return nil, err
	}
	b.servers[r] = s
	return s, b.start(ctx, s, r)
}

// start starts a server; a JVM is warmed up.
func (b *bench) start(ctx context.Context, s *started, r role) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if r == kafka && b.o.beside == "" {
		return b.warmJVM(ctx, s)
	}
	return nil
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
