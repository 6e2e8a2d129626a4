package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a request costs is measured without its client, which is another process: this
// same program, told by the environment what to do.
const (
	loadEnv    = "SERVER_TEST_LOAD" // address, connections, bytes of a request
	replyBytes = 60                 // about an answer to Produce
	smallBytes = 1 << 10            // of a small request
)

// fixedBody is a small answer that is there at once.
type fixedBody struct{}

func (fixedBody) Size() wire.Size { return wire.Size{Appended: replyBytes} }

func (fixedBody) Encode(dst []byte, _ wire.Splice) []byte {
	var b [replyBytes]byte
	return append(dst, b[:]...)
}

func (fixedBody) Release() {}

func answerFixed(context.Context) wire.Reply { return wire.Reply{Body: fixedBody{}, Spent: true} }

// elsewhere has answers made ready by one other goroutine, as a shard does.
type elsewhere struct{ turns chan wire.Turn }

func (e elsewhere) Begin(_ context.Context, c wire.Call) wire.Answer {
	c.Turn.Later()
	e.turns <- c.Turn
	return answerFixed
}

func (e elsewhere) run(ctx context.Context) {
	for {
		select {
		case t := <-e.turns:
			t.Ready()
		case <-ctx.Done():
			return
		}
	}
}

// sized is a whole request of n bytes. Of Produce nothing is reused.
func sized(key int16, n int) []byte {
	b := request(kmsg.RequestForKey(key), 9, 1)
	b = append(b, make([]byte, max(0, n-len(b)))...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-sizeBytes))
	return b
}

// BenchmarkRequest is what a request of 1 KiB costs in processor time (cpu-ns/op) with
// one in flight on each connection: of a handler whose answer is there at once, of one
// whose answers come from another goroutine, of one that is asked in turn, and, as the
// floor, of a bare loop that reads frames and writes them.
func BenchmarkRequest(b *testing.B) {
	for _, conns := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			b.Run("bare", func(b *testing.B) { loadBench(b, bareServer(b, smallBytes), conns, smallBytes, replyBytes+9) })
			for name, h := range map[string]wire.Handler{
				"at-once": handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
					c.Turn.Ready()
					return answerFixed
				}),
				"in-turn": handlerFunc(func(context.Context, wire.Call) wire.Answer { return answerFixed }),
			} {
				b.Run(name, func(b *testing.B) { loadBench(b, benchServer(b, loadConfig(), h), conns, smallBytes, replyBytes+9) })
			}
			b.Run("elsewhere", func(b *testing.B) {
				h := elsewhere{make(chan wire.Turn, 1000)}
				var wg sync.WaitGroup
				defer wg.Wait()
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				wg.Go(func() { h.run(ctx) })
				loadBench(b, benchServer(b, loadConfig(), h), conns, smallBytes, replyBytes+9)
			})
		})
	}
}

func loadConfig() Config {
	cfg := testConfig()
	cfg.MaxConnections = 2000
	return cfg
}

func benchServer(b *testing.B, cfg Config, h wire.Handler) (addr string) {
	return runServer(b, New(cfg, h, memory.New(256<<20), discard(), nil))
}

// runServer runs a server until the end.
func runServer(tb testing.TB, s *Server) (addr string) {
	if err := s.Listen(); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-ended })
	return s.Addrs()["PLAIN"].String()
}

func bareServer(b *testing.B, request int) (addr string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				_ = bareLoop(nc, request)
			})
		}
	})
	b.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

func bareLoop(nc net.Conn, request int) error {
	in, out := make([]byte, max(4<<10, request)), make([]byte, replyBytes+9)
	binary.BigEndian.PutUint32(out, replyBytes+9-sizeBytes)
	have := 0
	for {
		n, err := nc.Read(in[have:])
		if err != nil {
			return err
		}
		have += n
		for have >= sizeBytes {
			whole := int(binary.BigEndian.Uint32(in)) + sizeBytes
			if have < whole {
				break
			}
			have = copy(in, in[whole:have])
			if _, err := nc.Write(out); err != nil {
				return err
			}
		}
	}
}

// loadBench lets another process send requests, and measures this one.
func loadBench(b *testing.B, addr string, conns, request, reply int) {
	l := startLoad(b, addr, conns, request, reply)
	defer l.end()
	l.send(20 * conns)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	l.send(b.N)
	used := cpuTime(b) - before
	b.StopTimer()
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// load is the other process.
type load struct {
	tb   testing.TB
	to   io.WriteCloser
	from *bufio.Reader
	wait func() error
}

func startLoad(tb testing.TB, addr string, conns, request, reply int) *load {
	cmd := exec.Command(os.Args[0], "-test.run=^TestLoad$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %d", loadEnv, addr, conns, request, reply))
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return &load{tb, to, bufio.NewReader(from), cmd.Wait}
}

// send has n requests sent, one in flight on each connection, and waits for the
// replies.
func (l *load) send(n int) {
	if _, err := fmt.Fprintln(l.to, n); err != nil {
		l.tb.Fatal(err)
	}
	if line, err := l.from.ReadString('\n'); err != nil || line != "done\n" {
		l.tb.Fatalf("the load said %q: %v", line, err)
	}
}

func (l *load) end() {
	_ = l.to.Close()
	_ = l.wait()
}

// cpuTime is what this process has used.
func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestLoad is the other process: on its standard input it reads how many requests to
// send, again and again.
func TestLoad(t *testing.T) {
	spec := strings.Fields(os.Getenv(loadEnv))
	if len(spec) == 0 {
		t.Skip("only for benchmarks")
	}
	conns, frame := make([]net.Conn, number(t, spec[1])), sized(0, number(t, spec[2]))
	for i := range conns {
		nc, err := net.Dial("tcp", spec[0])
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		conns[i] = nc
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var left atomic.Int64
		left.Store(int64(number(t, in.Text())))
		var wg sync.WaitGroup
		for _, nc := range conns {
			wg.Go(func() {
				reply := make([]byte, number(t, spec[3]))
				for left.Add(-1) >= 0 {
					if _, err := nc.Write(frame); err != nil {
						t.Error(err)
						return
					}
					if _, err := io.ReadFull(nc, reply); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		fmt.Println("done")
	}
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// BenchmarkLargeRequest is what requests cost that do not fit the buffer, beside a loop
// that reads them into one place again and again.
func BenchmarkLargeRequest(b *testing.B) {
	for _, kib := range []int{16, 1024} {
		b.Run(fmt.Sprintf("KiB=%d", kib), func(b *testing.B) {
			b.SetBytes(int64(kib) << 10)
			b.Run("bare", func(b *testing.B) { loadBench(b, bareServer(b, kib<<10), 8, kib<<10, replyBytes+9) })
			b.Run("at-once", func(b *testing.B) {
				loadBench(b, benchServer(b, loadConfig(), handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
					c.Turn.Ready()
					return answerFixed
				})), 8, kib<<10, replyBytes+9)
			})
		})
	}
}

// recordsReply is an answer with records that stay where they are.
type recordsReply struct{ records []byte }

func (b recordsReply) Size() wire.Size {
	return wire.Size{Appended: replyBytes, Spliced: len(b.records)}
}

func (b recordsReply) Encode(dst []byte, splice wire.Splice) []byte {
	dst = append(dst, make([]byte, replyBytes)...)
	splice.Records(len(dst), b.records)
	return dst
}

func (recordsReply) Release() {}

// BenchmarkLargeReply is what replies cost whose records are large.
func BenchmarkLargeReply(b *testing.B) {
	const large = 1 << 20
	records := make([]byte, large)
	for _, kib := range []int{0, 128, 512} {
		b.Run(fmt.Sprintf("socket=%dKiB", kib), func(b *testing.B) {
			b.SetBytes(large)
			cfg := loadConfig()
			cfg.SocketBytes = kib << 10
			addr := benchServer(b, cfg, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
				return func(context.Context) wire.Reply { return wire.Reply{Body: recordsReply{records}, Spent: true} }
			}))
			loadBench(b, addr, 8, smallBytes, replyBytes+9+large)
		})
	}
}

// BenchmarkIdleConnections is what connections cost in memory that have sent some
// requests, and then nothing.
func BenchmarkIdleConnections(b *testing.B) {
	const conns = 2000
	cfg := testConfig()
	cfg.MaxConnections, cfg.IdleTimeout = conns, time.Minute
	for b.Loop() {
		addr := benchServer(b, cfg, handlerFunc(func(context.Context, wire.Call) wire.Answer { return answerFixed }))
		debug.FreeOSMemory()
		before := residentBytes(b)
		l := startLoad(b, addr, conns, smallBytes, replyBytes+9)
		l.send(20 * conns)
		pause(b.Context(), 4*sweepMax)
		for range 4 { // stacks shrink by half at a time
			runtime.GC()
		}
		debug.FreeOSMemory()
		b.ReportMetric(float64(residentBytes(b)-before)/conns/1024, "KiB/conn")
		b.ReportMetric(float64(runtime.NumGoroutine())/conns, "goroutines/conn")
		l.end()
	}
}

// residentBytes is the resident set of this process.
func residentBytes(tb testing.TB) int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		tb.Skip(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
