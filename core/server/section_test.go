package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mixedBody is a response of parts: text, and records in memory or in a file.
type mixedBody struct {
	parts    []mixedPart
	released *atomic.Int32 // or nil
}

type mixedPart struct {
	text, records []byte
	section       model.Section
}

func (b *mixedBody) Size() (size wire.Size) {
	for i := range b.parts {
		p := &b.parts[i]
		size.Appended, size.Spliced, size.Sections = size.Appended+len(p.text), size.Spliced+len(p.records), size.Sections+p.section.Bytes
	}
	return size
}

func (b *mixedBody) Encode(dst []byte, splice wire.Splice) []byte {
	for i := range b.parts {
		p := &b.parts[i]
		dst = append(dst, p.text...)
		splice.Section(len(dst), &p.section)
		splice.Records(len(dst), p.records)
	}
	return dst
}

func (b *mixedBody) Release() {
	if b.released != nil {
		b.released.Add(1)
	}
}

// owner counts how often it was told of damage.
type owner struct{ atomic.Int32 }

func (o *owner) Damaged() { o.Add(1) }

// recordsFile is a file of n bytes, none like those before it, and the same in memory.
func recordsFile(t testing.TB, n int) (*os.File, []byte) {
	t.Helper()
	content := make([]byte, 0, n+8)
	for i := uint64(1); len(content) < n; i++ {
		content = binary.BigEndian.AppendUint64(content, i*0x9e3779b97f4a7c15)
	}
	content = content[:n]
	path := filepath.Join(t.TempDir(), "records")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, content
}

// bare hides that a connection is a socket, as TLS does.
type bare struct{ net.Conn }

func (b bare) CloseWrite() error { return b.Conn.(*net.TCPConn).CloseWrite() }

// dialOver opens a connection that the server sees as what wrap makes of it.
func dialOver(t *testing.T, s *harness, wrap func(net.Conn) net.Conn) *client {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := dial(t, ln.Addr().String())
	served, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	s.open(t.Context(), "PLAIN", wrap(served), &serving)
	t.Cleanup(func() {
		_ = c.Close()
		serving.Wait()
	})
	return c
}

// ways are those by which a section can leave.
var ways = map[string]func(net.Conn) net.Conn{
	"from the file":  func(nc net.Conn) net.Conn { return nc },
	"through memory": func(nc net.Conn) net.Conn { return bare{nc} },
}

// interrupted interrupts all writes again and again, until the test ends.
func interrupted(t *testing.T, s *harness) {
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			for _, c := range s.connections() {
				c.watch(time.Now())
			}
		}
	})
	t.Cleanup(func() { stop(); wg.Wait() })
}

// Replies of sections, of records in memory and of what is between them arrive whole and
// in order, alone and beside others, however often their writes are interrupted.
func TestSections(t *testing.T) {
	const large = 5<<20 + 77
	file, content := recordsFile(t, large)
	section := func(from, to int) model.Section {
		return model.Section{File: file, Pos: int64(from), Bytes: to - from, Owner: &owner{}}
	}
	tests := []struct {
		parts []mixedPart
		want  []byte
	}{
		{[]mixedPart{{section: section(0, large)}}, content},
		{[]mixedPart{{text: []byte("a"), section: section(5, 6)}, {text: []byte("b")}}, []byte{'a', content[5], 'b'}},
		{[]mixedPart{{section: section(large-100, large)}, {section: section(7, 100_000)}, {}}, slices.Concat(content[large-100:], content[7:100_000])},
		{
			[]mixedPart{{records: content[:20_000]}, {text: []byte("x"), section: section(4095, 1<<20), records: content[3:9]}, {text: []byte("end")}},
			slices.Concat(content[:20_000], []byte("x"), content[4095:1<<20], content[3:9], []byte("end")),
		},
		{[]mixedPart{{text: bytes.Repeat([]byte("long"), 5000), section: section(1, 3<<20)}}, slices.Concat(bytes.Repeat([]byte("long"), 5000), content[1:3<<20])},
	}
	for name, wrap := range ways {
		for _, often := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, interrupted: %v", name, often), func(t *testing.T) {
				var released atomic.Int32
				s := start(t, testConfig(), 256<<20, handlerFunc(func(ctx context.Context, c wire.Call) wire.Answer {
					if c.CorrelationID%3 == 0 {
						return echo(ctx, c)
					}
					c.Turn.Ready()
					return func(context.Context) wire.Reply {
						return wire.Reply{Body: &mixedBody{tests[int(c.CorrelationID)%len(tests)].parts, &released}, Spent: true}
					}
				}))
				c := dialOver(t, s, wrap)
				if often {
					interrupted(t, s)
				}
				const n = 30
				var all []byte
				for i := range int32(n) {
					all = append(all, metadata(i)...)
				}
				c.send(all)
				for i := range int32(n) {
					id, body := c.receive()
					if id != i {
						t.Fatalf("reply %d in place %d", id, i)
					}
					if want := tests[int(i)%len(tests)].want; i%3 != 0 && !bytes.Equal(body[1:], want) {
						t.Fatalf("reply %d has %d bytes, want %d, or others", i, len(body)-1, len(want))
					}
				}
				_ = c.Close()
				s.events.awaitClosed(t, ClosedByClient, 1)
				if got := released.Load(); got != n-n/3 {
					t.Errorf("%d replies were let go of, want %d", got, n-n/3)
				}
				if name == "from the file" && s.copies.Load() {
					t.Error("the server believes that the kernel cannot send from these files")
				}
			})
		}
	}
}

// Over TLS a section goes through memory, little at a time.
func TestSectionsOverTLS(t *testing.T) {
	file, content := recordsFile(t, 3<<20)
	s := start(t, testConfig(), 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
		return func(context.Context) wire.Reply {
			return wire.Reply{Body: &mixedBody{parts: []mixedPart{{text: []byte("text"), section: model.Section{File: file, Pos: 3, Bytes: 2 << 20}}, {text: []byte("end")}}}}
		}
	}))
	pair := certificate(t)
	c := dialOver(t, s, func(nc net.Conn) net.Conn {
		return tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})
	})
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	secured := &client{t, tls.Client(c.Conn, &tls.Config{RootCAs: roots, ServerName: "broker", MinVersion: tls.VersionTLS13})}
	for i := range int32(3) {
		secured.send(metadata(i))
		id, body := secured.receive()
		if want := slices.Concat([]byte("\x00text"), content[3:3+2<<20], []byte("end")); id != i || !bytes.Equal(body, want) {
			t.Fatalf("reply %d in place %d with %d bytes, want %d, or others", id, i, len(body), len(want))
		}
	}
}

// certificate is one of a server that is named broker.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"broker"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// A file that does not have what it is to have, or cannot be read, costs the connection:
// its owner is told before the reply is let go of, and the client gets nothing in the
// place of what is missing.
func TestDamagedSection(t *testing.T) {
	file, content := recordsFile(t, 1<<20)
	closed, err := os.Open(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	unreadable, err := os.OpenFile(file.Name(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unreadable.Close()
	for name, section := range map[string]model.Section{
		"it ends early":    {File: file, Pos: 100, Bytes: 1 << 20},
		"all is behind it": {File: file, Pos: 1 << 20, Bytes: 10},
		"it is closed":     {File: closed, Bytes: 1 << 20},
		"it is unreadable": {File: unreadable, Bytes: 1 << 20},
		"no such place":    {File: file, Pos: -1, Bytes: 10},
	} {
		for way, wrap := range ways {
			t.Run(name+", "+way, func(t *testing.T) {
				var told owner
				section.Owner = &told
				body := &releasedAfter{mixedBody: mixedBody{parts: []mixedPart{{text: []byte("text"), section: section}, {text: []byte("end")}}}, told: &told}
				s := start(t, testConfig(), 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
					return func(context.Context) wire.Reply { return wire.Reply{Body: body} }
				}))
				c := dialOver(t, s, wrap)
				c.send(metadata(1))
				got := c.closed()
				s.events.awaitClosed(t, ClosedByStore, 1)
				head := headBytesMax + len("text")
				if len(got) > head && !bytes.Equal(got[head:], content[section.Pos:][:len(got)-head]) {
					t.Errorf("the client got other bytes than the file's among %d", len(got))
				}
				if name == "it ends early" && way == "from the file" && len(got) != head+1<<20-100 {
					t.Errorf("the client got %d bytes", len(got))
				}
				if told.Load() != 1 || body.toldBefore != 1 {
					t.Errorf("the owner was told %d times, %d of them before the end", told.Load(), body.toldBefore)
				}
				if text := s.log.String(); strings.Count(text, "can't be read from their file") != 1 || !strings.Contains(text, "file="+section.File.Name()) {
					t.Errorf("the log says %q", text)
				}
				if s.copies.Load() {
					t.Error("the server believes that the kernel cannot send from files")
				}
			})
		}
	}
}

// releasedAfter looks at what its section's owner knew when it was let go of.
type releasedAfter struct {
	mixedBody
	told       *owner
	toldBefore int32
}

func (b *releasedAfter) Release() { b.toldBefore = b.told.Load() }

// Where the kernel cannot send from a file, as from some of /proc, its sections go through
// memory, from then on without another attempt.
func TestSectionOfAnotherFileSystem(t *testing.T) {
	file, err := os.Open("/proc/self/environ")
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	content, err := os.ReadFile(file.Name())
	if err != nil || len(content) < 10 {
		t.Skipf("the environment has %d bytes: %v", len(content), err)
	}
	body := &weighedBody{mixedBody: mixedBody{parts: []mixedPart{{text: []byte("text"), section: model.Section{File: file, Pos: 3, Bytes: len(content) - 3}}}}}
	s := start(t, testConfig(), 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
		return func(context.Context) wire.Reply { return wire.Reply{Body: body} }
	}))
	body.budget = s.budget
	c := dial(t, s.addr)
	for i := range int32(3) {
		c.send(metadata(i))
		if _, body := c.receive(); string(body) != "\x00text"+string(content[3:]) {
			t.Fatalf("reply %d has %d bytes, want %d, or others", i, len(body), 5+len(content)-3)
		}
		if canSendFiles && !s.copies.Load() {
			t.Error("the kernel sends from this file, or it will be asked to again")
		}
	}
	s.stop()
	if body.least < connectionBytes+copyBytes {
		t.Errorf("%d bytes were held, of which the connection has %d", body.least, connectionBytes)
	}
}

// weighedBody looks at how much memory is held when it is let go of.
type weighedBody struct {
	mixedBody
	budget *memory.Budget
	least  int64
}

func (b *weighedBody) Release() {
	if used := b.budget.Used(); b.least == 0 || used < b.least {
		b.least = used
	}
}

// A reply of sections allocates nothing.
func TestSectionAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	file, content := recordsFile(t, 200<<10)
	body := &mixedBody{parts: []mixedPart{
		{text: []byte("text"), section: model.Section{File: file, Pos: 1, Bytes: 100 << 10}},
		{text: []byte("more"), records: content[:10<<10], section: model.Section{File: file, Bytes: 200 << 10}},
		{text: []byte("end")},
	}}
	answer := func(context.Context) wire.Reply { return wire.Reply{Body: body, Spent: true} }
	size := body.Size()
	frame, reply := metadata(1), make([]byte, headBytesMax+size.Appended+size.Spliced+size.Sections)
	for name, wrap := range ways {
		t.Run(name, func(t *testing.T) {
			s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
				c.Turn.Ready()
				return answer
			}))
			c := dialOver(t, s, wrap)
			if got := testing.AllocsPerRun(300, func() { exchange(t, c, frame, reply) }); got > 0 {
				t.Errorf("%v allocations a reply", got)
			}
		})
	}
}

// Clients that read nothing have hardly any memory for the sections that they asked for.
func TestDeafClientsOfSections(t *testing.T) {
	const n, large = 50, 16 << 20
	file, _ := recordsFile(t, large)
	for way, wrap := range ways {
		t.Run(way, func(t *testing.T) {
			s := start(t, testConfig(), 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
				return func(context.Context) wire.Reply {
					return wire.Reply{Body: &mixedBody{parts: []mixedPart{{text: []byte("text"), section: model.Section{File: file, Bytes: large}}}}}
				}
			}))
			for range n {
				dialOver(t, s, wrap).send(request(kmsg.NewPtrFetchRequest(), 12, 1))
			}
			for sending := 0; sending < n; pause(t.Context(), time.Millisecond) {
				sending = 0
				for _, c := range s.connections() {
					c.mu.Lock()
					if c.sending.on {
						sending++
					}
					c.mu.Unlock()
				}
			}
			each := int64(connectionBytes)
			if way == "through memory" {
				each += copyBytes
			}
			if used := s.budget.Used(); used < n*each || used > n*(each+1<<10) {
				t.Errorf("%d bytes are held for %d clients, want %d for each", used, n, each)
			}
		})
	}
}

// A client that reads nothing loses the section that it asked for when its time is up.
func TestDeafClientOfASection(t *testing.T) {
	const large = 16 << 20
	file, _ := recordsFile(t, large)
	for way, wrap := range ways {
		t.Run(way, func(t *testing.T) {
			var released atomic.Int32
			cfg := testConfig()
			cfg.WriteTimeout = 100 * time.Millisecond
			s := start(t, cfg, 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
				return func(context.Context) wire.Reply {
					return wire.Reply{Body: &mixedBody{[]mixedPart{{section: model.Section{File: file, Bytes: large}}}, &released}}
				}
			}))
			dialOver(t, s, wrap).send(request(kmsg.NewPtrFetchRequest(), 12, 1))
			s.events.awaitClosed(t, ClosedSlow, 1)
			if released.Load() != 1 {
				t.Error("the reply was not let go of")
			}
		})
	}
}

// What a Fetch took of files says nothing of how much memory the next one may have.
func TestSectionsAreNoMemory(t *testing.T) {
	file, _ := recordsFile(t, 4<<20)
	reserved := make(chan int, 1)
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		return func(ctx context.Context) wire.Reply {
			n, err := c.Room.Reserve(ctx, 0, 50<<20)
			if err != nil {
				return wire.Reply{}
			}
			reserved <- n
			part := mixedPart{section: model.Section{File: file, Bytes: 4 << 20}}
			if c.CorrelationID == 2 {
				part = mixedPart{records: make([]byte, 200<<10)}
			}
			return wire.Reply{Body: &mixedBody{parts: []mixedPart{part}}}
		}
	}))
	c := dial(t, s.addr)
	var got []int
	for i := range int32(5) {
		c.send(request(kmsg.NewPtrFetchRequest(), 12, i))
		got = append(got, <-reserved)
		c.receive()
	}
	after := 2 * (200<<10 + headBytesMax)
	if want := []int{firstFetchBytes, firstFetchBytes, firstFetchBytes, after, after}; !slices.Equal(got, want) {
		t.Errorf("the fetches had %d bytes, want %d", got, want)
	}
}

// Many connections send from different places of one file at once.
func TestSectionsOfOneFile(t *testing.T) {
	const n, large = 20, 2 << 20
	file, content := recordsFile(t, large)
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		from := int(c.CorrelationID) * 1001
		return func(context.Context) wire.Reply {
			return wire.Reply{Body: &mixedBody{parts: []mixedPart{{section: model.Section{File: file, Pos: int64(from), Bytes: large - 2*from}}}}}
		}
	}))
	var wg sync.WaitGroup
	for i := range n {
		c := dial(t, s.addr)
		wg.Go(func() {
			for j := range 3 {
				id := int32(i + j*n)
				if _, err := c.Write(metadata(id)); err != nil {
					t.Error(err)
					return
				}
				_, body, err := receive(c)
				if from := int(id) * 1001; err != nil || !bytes.Equal(body[1:], content[from:large-from]) {
					t.Errorf("%d bytes came of %d, or others: %v", len(body)-1, large-2*from, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkSectionReply is what replies cost whose records lie in a file, beside those
// that have been read into memory.
func BenchmarkSectionReply(b *testing.B) {
	const large = 1 << 20
	file, _ := recordsFile(b, large)
	records := make([]byte, large)
	for name, part := range map[string]mixedPart{"section": {section: model.Section{File: file, Bytes: large}}, "memory": {records: records}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(large)
			part.text = make([]byte, replyBytes)
			body := &mixedBody{parts: []mixedPart{part, {text: []byte{0, 0, 0}}}}
			addr := runServer(b, New(loadConfig(), handlerFunc(func(context.Context, wire.Call) wire.Answer {
				return func(context.Context) wire.Reply {
					if name == "memory" {
						_, _ = file.ReadAt(records, 0)
					}
					return wire.Reply{Body: body, Spent: true}
				}
			}), memory.New(256<<20), discard(), nil))
			loadBench(b, addr, 8, smallBytes, headBytesMax+replyBytes+3+large)
		})
	}
}
