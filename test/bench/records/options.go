package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brokerd/brokerd/test/bench/load"
)

// brokersMax bounds the brokers of one side.
const brokersMax = 9

// options are the flags.
type options struct {
	rows   []string
	list   bool
	rounds int
	round  time.Duration
	volume int64 // bytes of a round of batches, and of what is consumed
	killed int64 // bytes of log of the server that is killed
	warm   int64 // bytes to write and delete at first
	kafka  bool
	nats   bool
	bare   bool
	force  bool
	dir    string
	// brokers are so many on each side.
	brokers int
	// secret has brokerd's brokers encrypt what they send each other, which Kafka's do not.
	secret bool

	// Of full batches and of what is consumed: each with each.
	clients    []string
	codecs     []load.Codec
	partitions []int

	producers, inFlight, consumers int

	program, beside string
	args, env       []string
	profiles        string
}

func parse(args []string) (options, error) {
	o := options{clients: []string{raw, franz}, codecs: []load.Codec{load.None}, partitions: []int{partitions}, warm: -1}
	f := flag.NewFlagSet("records", flag.ContinueOnError)
	list(f, "rows", "rows to run; a name also stands for those that begin with it and - (default: all)", &o.rows, func(v string) (string, error) { return v, nil })
	f.BoolVar(&o.list, "list", false, "print the names of all rows")
	f.IntVar(&o.rounds, "rounds", 5, "alternations, after one that is not counted")
	number(f, "seconds", "length of a round, where it is not bounded by -volume (default 3)", func(n float64) { o.round = time.Duration(n * float64(time.Second)) }, 3)
	number(f, "volume", "MiB of a round of full batches, and of what is consumed (default 1536)", func(n float64) { o.volume = int64(n * (1 << 20)) }, 1536)
	number(f, "killed", "MiB of log in the row start-killed (default 2048)", func(n float64) { o.killed = int64(n * (1 << 20)) }, 2048)
	number(f, "warm", "MiB to write and delete at first (default: four times -volume; none with -force)", func(n float64) { o.warm = int64(n * (1 << 20)) })
	f.BoolVar(&o.kafka, "kafka", true, "measure Apache Kafka too")
	f.BoolVar(&o.nats, "nats", false, "measure NATS JetStream too, in the rows that it has something to compare with")
	f.BoolVar(&o.bare, "bare", false, "measure a simple loop too, which takes one request at a time and does the least for it (test/bench/bare), in the rows sync, single and produce of the raw client")
	f.IntVar(&o.brokers, "brokers", 1, "brokers of each side, one cluster on this machine: with 3 or more, topics have 3 replicas, of which 2 must be in sync, and brokerd's flush is its default")
	f.BoolVar(&o.secret, "secret", false, "with -brokers: brokerd's brokers prove who they are and encrypt, as by default (mutual TLS); else what they send each other is plaintext, as Kafka's is")
	f.BoolVar(&o.force, "force", false, "print whatever else the machine does: not to be reported")
	f.StringVar(&o.dir, "dir", "", "where the servers' data is (default: the folder for temporary files)")
	list(f, "clients", "clients that send full batches and consume: "+strings.Join(knownClients, ", ")+" (default raw,franz)", &o.clients, knownClient)
	list(f, "codecs", "how full batches are compressed: none, lz4, zstd (default none)", &o.codecs, func(v string) (load.Codec, error) { return load.Codec(v), load.Codec(v).Validate() })
	list(f, "partitions", "partitions of the topics of full batches (default 6)", &o.partitions, positive)
	f.IntVar(&o.producers, "producers", 6, "raw connections that send full batches, where there are not more partitions")
	f.IntVar(&o.inFlight, "inflight", 2, "full batches in flight on each")
	f.IntVar(&o.consumers, "consumers", 3, "raw connections that consume")
	f.StringVar(&o.program, "brokerd", "", "a brokerd that was built before, instead of this tree's")
	f.StringVar(&o.beside, "beside", "", "a brokerd that was built before, in Kafka's place")
	f.Func("args", "arguments of brokerd dev, separated by spaces", func(v string) error {
		o.args = strings.Fields(v)
		return nil
	})
	f.Func("env", "name=value in the environment of brokerd and of -bare (repeatable)", func(v string) error {
		if !strings.Contains(v, "=") {
			return errors.New("want name=value")
		}
		o.env = append(o.env, v)
		return nil
	})
	f.StringVar(&o.profiles, "cpuprofile", "", "folder for profiles of brokerd's processes, and of -bare's, of the counted rounds")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.warm < 0 {
		o.warm = 4 * o.volume
		if o.force {
			o.warm = 0
		}
	}
	return o, o.validate(f.Args())
}

func (o options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q is not expected: only flags are", rest[0])
	case min(o.rounds, o.producers, o.inFlight, o.consumers) < 1 || o.round <= 0 || min(o.volume, o.killed) <= 0:
		return errors.New("numbers must be above 0")
	case o.brokers != 1 && (o.brokers < 3 || o.brokers > brokersMax):
		return fmt.Errorf("-brokers: 1, or 3 to %d", brokersMax)
	case o.brokers == 1 && o.secret:
		return errors.New("-secret is for what several brokers send each other: -brokers 3")
	case o.brokers > 1 && (o.nats || o.bare):
		return errors.New("-nats and -bare are one server, and not for -brokers")
	case len(o.clients) == 0 || len(o.codecs) == 0 || len(o.partitions) == 0:
		return errors.New("-clients, -codecs and -partitions need one at least")
	}
	return nil
}

// list adds a flag that has values separated by commas.
func list[T any](f *flag.FlagSet, name, usage string, to *[]T, parse func(string) (T, error)) {
	f.Func(name, usage, func(text string) error {
		*to = nil
		for _, v := range strings.Split(text, ",") {
			x, err := parse(v)
			if err != nil {
				return err
			}
			*to = append(*to, x)
		}
		return nil
	})
}

// number adds a flag that is a number, and sets its default, if it has one.
func number(f *flag.FlagSet, name, usage string, set func(float64), otherwise ...float64) {
	for _, n := range otherwise {
		set(n)
	}
	f.Func(name, usage, func(text string) error {
		n, err := strconv.ParseFloat(text, 64)
		if err == nil && (n < 0 || n > 1e9) {
			err = errors.New("want a number from 0 on")
		}
		set(n)
		return err
	})
}

func knownClient(v string) (string, error) {
	if !slices.Contains(knownClients, v) {
		return "", fmt.Errorf("there is no client %q", v)
	}
	return v, nil
}

func positive(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 10_000 {
		return 0, fmt.Errorf("%q is no number of partitions", v)
	}
	return n, nil
}
