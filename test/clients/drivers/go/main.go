package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// What members ask of their group's coordinator.
const (
	sessionTimeout    = 6 * time.Second
	heartbeatInterval = time.Second
	rebalanceTimeout  = 10 * time.Second
)

// library is what a client can be told to do. A nil function is something that the
// client does not have.
type library struct {
	version func() (string, error)
	produce func(ctx context.Context, o options) error
	consume func(ctx context.Context, o options, out *output) error
	// member returns once ctx has ended and the group has been left.
	member func(ctx context.Context, o options, out *output) error
	admin  func(ctx context.Context, o options, out *output) error
}

func libraries() map[string]library {
	return map[string]library{
		"franz-go":           franz(),
		"sarama":             saramaLibrary(sarama.MaxVersion),
		"sarama-default":     saramaLibrary(sarama.DefaultVersion),
		"kafka-go":           kafkaGo(),
		"confluent-kafka-go": confluent(),
		"kcat":               kcat(),
	}
}

// options are the keys of a command.
type options struct {
	bootstrap, topic string
	group, instance  string
	codec            string
	count, from      int
	timestamp        int64
	idempotent       bool
	cooperative      bool
}

// keys are what each command takes.
var keys = map[string][]string{
	"version": {},
	"produce": {"bootstrap", "topic", "codec", "count", "from", "idempotent", "timestamp"},
	"consume": {"bootstrap", "topic", "count"},
	"member":  {"bootstrap", "topic", "group", "instance", "protocol"},
	"admin":   {"bootstrap", "topic"},
}

func main() {
	if err := run(os.Args[1:], &output{to: os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

func run(args []string, out *output) error {
	if len(args) < 2 {
		return errors.New("usage: CLIENT COMMAND [key=value]")
	}
	lib, ok := libraries()[args[0]]
	if !ok {
		return fmt.Errorf("no client %q", args[0])
	}
	o, err := parse(args[1], args[2:])
	if err != nil {
		return err
	}
	ctx := context.Background()
	switch command := args[1]; {
	case command == "version":
		v, err := lib.version()
		if err != nil {
			return err
		}
		out.emit(event{"event": "version", "version": v})
		return nil
	case command == "produce":
		if err := lib.produce(ctx, o); err != nil {
			return err
		}
		out.emit(event{"event": "produced", "count": o.count})
		return nil
	case command == "consume":
		return lib.consume(ctx, o, out)
	case command == "member":
		return lib.member(untilStdinEnds(), o, out)
	case lib.admin == nil:
		return fmt.Errorf("%s has no administration", args[0])
	default:
		return lib.admin(ctx, o, out)
	}
}

// parse reads the keys of a command.
func parse(command string, args []string) (options, error) {
	o := options{codec: "none"}
	known, ok := keys[command]
	if !ok {
		return o, fmt.Errorf("no command %q", command)
	}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || !slices.Contains(known, key) {
			return o, fmt.Errorf("%s does not take %q", command, arg)
		}
		if err := o.set(key, value); err != nil {
			return o, fmt.Errorf("%s: %w", arg, err)
		}
	}
	return o, nil
}

// brokers are the addresses to begin with.
func (o *options) brokers() []string { return strings.Split(o.bootstrap, ",") }

func (o *options) set(key, value string) (err error) {
	switch key {
	case "bootstrap":
		o.bootstrap = value
	case "topic":
		o.topic = value
	case "group":
		o.group = value
	case "instance":
		o.instance = value
	case "codec":
		o.codec = value
	case "count":
		o.count, err = strconv.Atoi(value)
	case "from":
		o.from, err = strconv.Atoi(value)
	case "timestamp":
		o.timestamp, err = strconv.ParseInt(value, 10, 64)
	case "idempotent":
		o.idempotent, err = strconv.ParseBool(value)
	case "protocol":
		if value != "eager" && value != "cooperative" {
			return errors.New("eager or cooperative")
		}
		o.cooperative = value == "cooperative"
	}
	return err
}

// untilStdinEnds is a context that ends with stdin.
func untilStdinEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// record is one record to be sent.
type record struct {
	key, value []byte
	headers    [][2]string
	at         time.Time
	placed     bool // in partition 0, by us
}

// records are what produce is to send.
func (o options) records() []record {
	var all []record
	for i := o.from; i < o.from+o.count; i++ {
		all = append(all, record{
			key:     fmt.Appendf(nil, "k-%d", i),
			value:   fmt.Appendf(nil, "v-%d-%s", i, strings.Repeat(string(rune('a'+i%26)), 100)),
			headers: [][2]string{{"n", strconv.Itoa(i)}, {"empty", ""}},
			at:      time.UnixMilli(o.timestamp + int64(i)),
			placed:  i%3 == 0,
		})
	}
	return all
}

// event is a line of output.
type event map[string]any

// output prints events, each whole. It may be used by several goroutines.
type output struct {
	mu sync.Mutex
	to io.Writer
}

func (w *output) emit(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // all that is printed are strings and numbers
	}
	w.mu.Lock()
	_, err = w.to.Write(append(line, '\n'))
	w.mu.Unlock()
	if err != nil {
		os.Exit(1) // the harness is gone
	}
}

func (w *output) record(partition int32, offset int64, key, value []byte, headers [][2]string, timestamp int64) {
	if headers == nil {
		headers = [][2]string{}
	}
	w.emit(event{"event": "record", "partition": partition, "offset": offset, "key": string(key), "value": string(value),
		"headers": headers, "timestamp": timestamp})
}

func (w *output) assigned(has map[int32]bool) {
	partitions := []int32{}
	for p := range has {
		partitions = append(partitions, p)
	}
	slices.Sort(partitions)
	w.emit(event{"event": "assigned", "partitions": partitions})
}

func (w *output) committed(partition int32, offset int64) {
	w.emit(event{"event": "committed", "partition": partition, "offset": offset})
}

// did tells of an administration's call that went well; an error is told as the
// call's.
func (w *output) did(call string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	w.emit(event{"event": "admin", "call": call})
	return nil
}

// logf tells of something on stderr.
func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// moduleVersion is the version of a module that this program was built with.
func moduleVersion(path string) func() (string, error) {
	return func() (string, error) {
		info, ok := debug.ReadBuildInfo()
		if ok {
			for _, m := range info.Deps {
				if m.Path == path {
					return strings.TrimPrefix(m.Version, "v"), nil
				}
			}
		}
		return "", fmt.Errorf("%s is not in this program", path)
	}
}

// eventually asks again, ten times a second, until an answer is as wanted: changes of
// metadata take their time. It gives up after 10 s.
func eventually(ask func() error) error {
	var err error
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 100 {
		if err = ask(); err == nil {
			return nil
		}
		<-tick.C
	}
	return err
}
