package membership

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/lifecycle"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

// fakeController registers one broker, unfences it with its first heartbeat, and lets it
// go when it asks.
type fakeController struct {
	mu     sync.Mutex
	member *Member
	self   image.Broker
	offset int64
	fails  error // what it answers, if it is set
	dumb   bool  // it never answers
	stays  bool  // it lets nobody go
	beats  int
	beaten atomic.Int32 // answers of heartbeats that it was told of as good
	image  *image.Image // that the broker has
	// offline is which of its directories do not serve, and said what it has told of that.
	offline, said []model.DirectoryID
	logs          []model.LogEnd
	waits         []<-chan struct{} // while it is dumb: what is told that nobody waits any longer
}

func (c *fakeController) Start(op controller.Op, gone <-chan struct{}, done func(controller.Answer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dumb {
		c.waits = append(c.waits, gone)
		return
	}
	if c.fails != nil {
		done(controller.Answer{Err: c.fails})
		return
	}
	switch op := op.(type) {
	case controller.RegisterBroker:
		c.offset++
		c.self = image.Broker{ID: op.Registration.NodeID, Incarnation: op.Registration.Incarnation, Epoch: model.BrokerEpoch(c.offset), Fenced: true}
		done(controller.Answer{Epoch: c.self.Epoch})
	case controller.ReportLogs:
		c.logs = op.Logs
		done(controller.Answer{})
		return
	case controller.Heartbeat:
		c.beats++
		c.said = op.Offline
		if op.Epoch != c.self.Epoch {
			done(controller.Answer{Err: model.ErrStaleBrokerEpoch})
			return
		}
		c.offset++
		c.self.Fenced = op.WantShutdown && !c.stays || op.Offset < int64(c.self.Epoch)
		done(controller.Answer{Heartbeat: controller.HeartbeatAnswer{Fenced: c.self.Fenced, MayShutDown: op.WantShutdown && c.self.Fenced}})
	}
	c.tell()
}

func (c *fakeController) tell() {
	seen := &lifecycle.Seen{
		Offset: c.offset, Registered: true, Incarnation: c.self.Incarnation, Epoch: c.self.Epoch, Fenced: c.self.Fenced,
	}
	c.member.loop.Complete(seen)
}

func (c *fakeController) imageNow() (img *image.Image) {
	c.set(func() { img = c.image })
	return img
}

func (c *fakeController) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// logBuffer may be written to from many goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// imageOf is an image of some records.
func imageOf(t *testing.T, records ...image.Record) *image.Image {
	t.Helper()
	all := append([]image.Record{&image.ClusterRecord{Cluster: image.Cluster{ID: "test", FeatureLevel: 1}}}, records...)
	img, err := image.FromRecords(5, all...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// another is a broker beside the one under test, which serves or is fenced.
func another(fenced bool) image.Record {
	return &image.BrokerRecord{ID: 4, Epoch: 1, Incarnation: [16]byte{4}, Directories: []model.DirectoryID{{4}}, Fenced: fenced}
}

// leaveMax is how long leaving may take here.
const leaveMax = 3 * time.Second

func leave(t *testing.T, m *Member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), leaveMax)
	defer cancel()
	m.Leave(ctx)
}

// joining runs a membership until the test ends.
func joining(t *testing.T, c *fakeController) (m *Member, log *logBuffer, ended chan error, stop func()) {
	t.Helper()
	cfg := lifecycle.Defaults()
	cfg.Incarnation = [16]byte{1}
	log = &logBuffer{}
	if c.image == nil {
		c.image = imageOf(t, another(false))
	}
	m, err := New(Config{Lifecycle: cfg, Registration: controller.Registration{NodeID: 3}}, Deps{
		Commands: c, Clock: loop.System{}, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Image: func() *image.Image { return c.imageNow() },
		Ends: func(ps []model.Partition) (out []model.LogEnd) {
			for _, p := range ps {
				out = append(out, model.LogEnd{Partition: p, LEO: 7})
			}
			return out
		},
		Offline: func() []model.DirectoryID { return c.offline }, // of which nothing changes
		Beaten: func(_ time.Duration, ok bool) {
			if ok {
				c.beaten.Add(1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.member = m
	ctx, cancel := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	return m, log, ended, cancel
}

func TestMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeController{}
		m, log, ended, stop := joining(t, c)
		if err := m.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait() // what is due now is done
		c.set(func() {
			if c.beats < 5 || int(c.beaten.Load()) != c.beats {
				t.Errorf("%d heartbeats in a second, and %d are told of", c.beats, c.beaten.Load())
			}
			c.self.Fenced = true
			c.offset++
			c.tell()
		})
		synctest.Wait()
		if !strings.Contains(log.String(), "this broker is no longer fenced") || !strings.Contains(log.String(), "this broker is fenced") {
			t.Errorf("fenced and unfenced, and the log says\n%s", log)
		}
		c.set(func() { c.fails = model.ErrNotController })
		time.Sleep(30 * time.Second)
		c.set(func() { c.fails = nil })
		time.Sleep(time.Second)
		if n := strings.Count(log.String(), "does not answer this broker as it should"); n < 2 || n > 4 || !strings.Contains(log.String(), "answers this broker again") {
			t.Errorf("half a minute without a controller is told %d times:\n%s", n, log)
		}
		leave(t, m)
		if !strings.Contains(log.String(), "others lead what this broker led") {
			t.Errorf("it has left, and the log says\n%s", log)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("run ended before it was stopped: %v", err)
		default:
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// One that the controller does not let go, or that has none, ends all the same.
func TestLeavingIsBounded(t *testing.T) {
	for name, change := range map[string]func(*fakeController){
		"not let go":    func(c *fakeController) { c.stays = true },
		"no controller": func(c *fakeController) { c.fails = model.ErrNotController },
		"silence":       func(c *fakeController) { c.dumb = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &fakeController{}
				m, log, ended, stop := joining(t, c)
				if err := m.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.set(func() { change(c) })
				began := time.Now()
				leave(t, m)
				if took := time.Since(began); took != leaveMax {
					t.Errorf("it left after %s", took)
				}
				if !strings.Contains(log.String(), "stops before the controller has let it go") {
					t.Errorf("the log says\n%s", log)
				}
				stop()
				<-ended
			})
		})
	}
}

// Whoever registers under this broker's number ends this one, and why is told.
func TestAnotherTakesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeController{}
		m, _, ended, stop := joining(t, c)
		defer stop()
		if err := m.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.set(func() {
			c.offset++
			c.self.Incarnation, c.self.Epoch = [16]byte{2}, model.BrokerEpoch(c.offset)
			c.tell()
		})
		if err := <-ended; !errors.Is(err, model.ErrDuplicateBroker) {
			t.Errorf("ended with %v", err)
		}
	})
}

// While nobody leads the quorum, what was asked waits there. Only the last is of use: a
// minute's worth would take the place of what clients ask.
func TestOneQuestionWaits(t *testing.T) {
	for name, registered := range map[string]bool{"heartbeats": true, "registrations": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &fakeController{dumb: !registered}
				m, _, ended, stop := joining(t, c)
				if registered {
					if err := m.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				c.set(func() { c.dumb = true })
				time.Sleep(time.Minute)
				synctest.Wait() // what is due now is asked
				c.set(func() {
					waiting := 0
					for _, gone := range c.waits {
						select {
						case <-gone:
						default:
							waiting++
						}
					}
					if len(c.waits) < 10 || waiting != 1 {
						t.Errorf("%d of %d questions wait", waiting, len(c.waits))
					}
				})
				stop()
				<-ended
			})
		})
	}
}

// Who waits in vain is told why.
func TestNoControllerAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, ended, stop := joining(t, &fakeController{fails: model.ErrNotController})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := m.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, model.ErrNotController) {
			t.Errorf("waited, and got %v", err)
		}
		stop()
		<-ended
	})
}

// Where all that were in sync may have lost something, the controller is told how long this
// broker's logs are.
func TestLogEndsAreReported(t *testing.T) {
	p := model.Partition{Topic: model.TopicID{7}, Index: 0}
	img := imageOf(t,
		&image.TopicRecord{ID: p.Topic, Name: "orders", ReplicationFactorTarget: 1},
		&image.PartitionRecord{Partition: p, Registration: image.Partition{
			Leader: model.NoNode, LastKnownELR: []model.NodeID{3}, Replicas: []model.NodeID{3}, Directories: []model.DirectoryID{{1}},
		}})
	synctest.Test(t, func(t *testing.T) {
		c := &fakeController{image: img}
		m, _, ended, stop := joining(t, c)
		if err := m.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		c.set(func() {
			if len(c.logs) != 1 || c.logs[0].Partition != p || c.logs[0].LEO != 7 {
				t.Errorf("reported %v", c.logs)
			}
		})
		stop()
		<-ended
	})
}

// Where no other broker serves, this one gives nothing up: it says of no directory that it does
// not serve, and does not wait for anybody before it ends. One that serves changes that.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeController{image: imageOf(t, another(true)), offline: []model.DirectoryID{{9}}, stays: true}
		m, _, ended, stop := joining(t, c)
		if err := m.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait() // what is due now is done
		c.set(func() {
			if len(c.said) > 0 {
				t.Errorf("alone, it says of %v that they do not serve", c.said)
			}
		})
		began := time.Now()
		if leave(t, m); time.Since(began) != 0 || m.leaving.Load() {
			t.Errorf("alone, it leaves for %s", time.Since(began))
		}
		c.set(func() { c.image = imageOf(t, another(false)) })
		time.Sleep(time.Second)
		synctest.Wait()
		c.set(func() {
			if !slices.Equal(c.said, c.offline) {
				t.Errorf("another broker serves, and it says of %v that they do not", c.said)
			}
		})
		if leave(t, m); !m.leaving.Load() {
			t.Error("another broker serves, and it does not leave")
		}
		stop()
		<-ended
	})
}
