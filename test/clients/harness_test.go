package clients

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/brokerd/brokerd/test/rig"
)

const (
	// slotsMax is how many clients are at work at a time at most, whatever the machine. Most
	// of their time they wait, for sessions to end and for members to settle. How many may be
	// at a time is also go test's -parallel.
	slotsMax = 3
	// askTimeout bounds what the harness itself asks of a broker.
	askTimeout = 30 * time.Second
)

// suite is what all tests share. TestMain makes it.
var suite *matrix

// matrix is one run of the tests. It may be used by several at once.
type matrix struct {
	dir        string // removed at the end
	bootstrap  string // the brokers that are there, or empty
	brokers    int    // of each cluster of the tests' own
	executable func() (string, error)
	shared     func() (*cluster, error) // for all cases that leave the brokers alone
	godriver   func() (string, error)
	slots      chan struct{}
	table      table
}

func TestMain(m *testing.M) {
	bootstrap := flag.String("bootstrap", "", "host:port,... of brokers to use instead of the tests' own")
	brokers := flag.Int("brokers", 3, "how many brokers the tests' own clusters have")
	flag.Parse()
	os.Exit(runMatrix(m, *bootstrap, *brokers))
}

func runMatrix(m *testing.M, bootstrap string, brokers int) int {
	dir, err := os.MkdirTemp("", "brokerd-clients-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	suite = &matrix{dir: dir, bootstrap: bootstrap, brokers: brokers, slots: make(chan struct{}, slotsMax)}
	suite.executable = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "brokerd")
		return path, rig.Build(context.Background(), "", path, rig.Brokerd)
	})
	suite.godriver = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "godriver")
		return path, rig.Build(context.Background(), "drivers/go", path, ".")
	})
	started := false
	suite.shared = sync.OnceValues(func() (*cluster, error) {
		started = true
		shared := filepath.Join(dir, "shared")
		ports, err := clusterPorts()
		if err == nil {
			err = os.Mkdir(shared, 0o755)
		}
		if err != nil {
			return &cluster{}, err
		}
		return startCluster(shared, ports, nil)
	})
	code := m.Run()
	if started {
		c, _ := suite.shared() // its cases have told of an error
		if err := c.stop(); err != nil {
			fmt.Fprintf(os.Stderr, "the shared brokers: %v\n%s\n", err, c.tail())
			code = 1
		}
	}
	suite.table.print(os.Stdout)
	return code
}

// tool asks scripts/tools for something to be installed, and returns what it
// prints.
func tool(name string) (string, error) { return rig.Tool(context.Background(), name) }

// run is one case of one client: a test that remembers why it failed.
type run struct {
	*testing.T
	// addr is where the shared brokers are. A case that needs brokers of its own asks
	// ownCluster.
	addr string

	mu     sync.Mutex
	why    string
	result string // pass unless set
}

// Errorf fails the case and goes on.
func (r *run) Errorf(format string, args ...any) {
	r.Helper()
	r.fail(fmt.Sprintf(format, args...))
	r.T.Errorf(format, args...)
}

// Fatalf fails the case and ends it. It is for the test's own goroutine.
func (r *run) Fatalf(format string, args ...any) {
	r.Helper()
	r.fail(fmt.Sprintf(format, args...))
	r.T.Fatalf(format, args...)
}

// Error fails the case and goes on.
func (r *run) Error(args ...any) {
	r.Helper()
	r.fail(fmt.Sprint(args...))
	r.T.Error(args...)
}

// Fatal fails the case and ends it.
func (r *run) Fatal(args ...any) {
	r.Helper()
	r.fail(fmt.Sprint(args...))
	r.T.Fatal(args...)
}

func (r *run) fail(why string) { r.end(resultFail, why) }

// none ends a case of something that the client does not have.
func (r *run) none(why string) {
	r.end(resultNone, why)
	r.SkipNow()
}

// notRun ends a case that the given broker cannot be put through.
func (r *run) notRun(why string) {
	r.end(resultNotRun, why)
	r.SkipNow()
}

// end keeps the first word on how the case ended.
func (r *run) end(result, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.result == "" {
		r.result, r.why = result, why
	}
}

// client runs f, which runs the cases of one client or tool, beside as many others as there
// are slots.
func (m *matrix) client(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		m.slots <- struct{}{}
		defer func() { <-m.slots }()
		f(t)
	})
}

// runCase runs one case as a test and puts its row into the table.
func (m *matrix) runCase(t *testing.T, client, version, name string, f func(r *run)) {
	t.Run(name, func(t *testing.T) {
		r := &run{T: t}
		began := time.Now()
		defer func() {
			if t.Failed() {
				r.end(resultFail, "see the log") // a failure that did not come by Errorf
			}
			r.end(resultPass, "")
			m.table.add(row{client: client, version: version, name: name, result: r.result, why: r.why, took: time.Since(began)})
		}()
		addr, err := m.addr()
		if err != nil {
			r.Fatal(err)
		}
		r.addr = addr
		f(r)
	})
}

// addr is where the brokers are that the cases share.
func (m *matrix) addr() (string, error) {
	if m.bootstrap != "" {
		return m.bootstrap, nil
	}
	c, err := m.shared()
	if err != nil {
		return "", err
	}
	return c.addr(), nil
}

// within is a context that ends with the test or after the given time.
func (r *run) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), d)
	r.Cleanup(cancel)
	return ctx
}

// eventually calls f until it returns nil, and is the one way in which tests wait
// for what they cannot be told of. Its error is f's last one, and why it was given
// up.
func eventually(ctx context.Context, f func() error) error { return rig.Eventually(ctx, f) }

// client is a franz-go client that is closed when the case ends.
func (r *run) client(addr string, opts ...kgo.Opt) *kgo.Client {
	r.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(addr, ",")...), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(c.Close)
	return c
}

// admin is a franz-go client for administration.
func (r *run) admin(addr string) *kadm.Client {
	r.Helper()
	return kadm.NewClient(r.client(addr))
}

// newName is a name for a topic or group that nobody has.
func (r *run) newName(prefix string) string { return fmt.Sprintf("%s-%08x", prefix, rand.Uint32()) }

// topic makes a topic with a name of its own, whose records never go by age.
func (r *run) topic(addr, prefix string, partitions int32) string {
	r.Helper()
	name := r.newName(prefix)
	forever := "-1"
	_, err := r.admin(addr).CreateTopic(r.within(askTimeout), partitions, -1, map[string]*string{"retention.ms": &forever}, name)
	if err != nil {
		r.Fatalf("create topic %s: %v", name, err)
	}
	return name
}
