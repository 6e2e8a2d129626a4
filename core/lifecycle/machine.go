package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// Config is what a Machine is made from.
type Config struct {
	// Incarnation is random for each start of the process.
	Incarnation [16]byte
	// Every is the time between two heartbeats.
	Every time.Duration
	// RetryMin and RetryMax are between which the pause grows after a registration that has
	// failed.
	RetryMin, RetryMax time.Duration
	// RegisterMax is how long an answer to a registration is waited for.
	RegisterMax time.Duration
	// OfflineMax is how long a broker goes on with a directory that does not serve where it
	// cannot tell the controller.
	OfflineMax time.Duration
}

// Defaults is the product's, but for the incarnation.
func Defaults() Config {
	return Config{
		Every: 200 * time.Millisecond, RetryMin: 50 * time.Millisecond, RetryMax: 200 * time.Millisecond,
		RegisterMax: 3 * time.Second, OfflineMax: 30 * time.Second,
	}
}

// Validate says what is wrong with it.
func (c Config) Validate() error {
	switch {
	case c.Incarnation == [16]byte{}:
		return errors.New("the broker's incarnation is not drawn")
	case c.Every <= 0 || c.RetryMin <= 0 || c.RetryMax < c.RetryMin || c.RegisterMax <= 0 || c.OfflineMax <= 0:
		return errors.New("times between heartbeats, for registering, and for telling of directories are above 0")
	}
	return nil
}

// Call numbers what the controller was asked; it comes back with the answer.
type Call uint64

// Input is what a Machine can be stepped with: a pointer to one of the types below. The
// machine does not keep it.
type Input interface{ input() }

type (
	// Seen is what the newest image says of this broker. Not Registered: nothing.
	Seen struct {
		Offset      int64 // of the image
		Registered  bool
		Incarnation [16]byte
		Epoch       model.BrokerEpoch
		Fenced      bool
	}
	// Registered answers Register. Err wraps a sentinel.
	Registered struct {
		Call  Call
		Epoch model.BrokerEpoch
		Err   error
	}
	// Beaten answers Heartbeat. MayEnd: nobody counts on the broker any longer. Fenced: it does
	// not serve, by the metadata up to Offset.
	Beaten struct {
		Call   Call
		MayEnd bool
		Fenced bool
		Offset int64
		Err    error
	}
	// Offline says which of the broker's directories do not serve. (KIP-858)
	Offline struct{ Directories []model.DirectoryID }
	// Leave says that the broker is to end: it gives up what it leads first.
	Leave struct{}
	// Due says that the time of Deadline has come.
	Due struct{}
)

func (*Seen) input()       {}
func (*Registered) input() {}
func (*Beaten) input()     {}
func (*Offline) input()    {}
func (*Leave) input()      {}
func (*Due) input()        {}

// Effects is what a step asks for. The caller clears it.
type Effects struct {
	// Register asks for a registration, which Registered answers.
	Register *Register
	// Heartbeats say that the broker lives; Beaten answers each.
	Heartbeats []Heartbeat
	// Ended says, once, that the broker is to end: nil after Leave, or why it must.
	Ended *Ended
}

// Register is a question to the active controller. The host adds who the broker is.
type Register struct {
	Call        Call
	Incarnation [16]byte
}

// Heartbeat is another one.
type Heartbeat struct {
	Call   Call
	Epoch  model.BrokerEpoch
	Offset int64 // of the metadata that the broker has
	Leave  bool  // it wants to end
	// Offline are the directories that do not serve.
	Offline []model.DirectoryID
}

// Ended is why a broker ends.
type Ended struct{ Err error }

// Machine is one life of a broker in its cluster. It belongs to one goroutine.
type Machine struct {
	cfg  Config
	seen Seen

	epoch     model.BrokerEpoch // of the registration, or 0 before there is one
	call      Call              // the last
	asking    Call              // the registration that is waited for, or 0
	retry     time.Duration
	next      time.Time // when to say something again
	first     Call      // of the heartbeats of this registration
	answered  Call      // the latest heartbeat that was
	lastHeard time.Time // when the last was sent that counts for LastHeard
	counts    hearing   // will count when its metadata is here; zero: none
	sent      [sentKept]hearing
	offline   []model.DirectoryID
	tells     Call      // the first heartbeat of this registration that says so, or 0: it was heard
	untold    time.Time // since when it was not
	leaving   bool
	ended     bool
}

// sentKept is how many heartbeats are remembered that were sent.
const sentKept = 32

// hearing is a heartbeat: when it was sent, and the metadata that its answer is by.
type hearing struct {
	call   Call
	at     time.Time
	offset int64
}

// New makes a machine, which registers the broker with the first Due.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lifecycle: %w", err)
	}
	return &Machine{cfg: cfg, retry: cfg.RetryMin}, nil
}

// Epoch is the broker's epoch; false: it is not registered yet.
func (m *Machine) Epoch() (model.BrokerEpoch, bool) { return m.epoch, m.epoch != 0 }

// Fenced reports whether the broker is fenced, as far as it knows: it may not lead, nor be in
// sync, and clients are not to be told of it.
func (m *Machine) Fenced() bool {
	return m.epoch == 0 || !m.own() || m.seen.Fenced
}

// LastHeard is when the last heartbeat of this registration was sent of which it is known that
// the broker was not fenced then, with the metadata by which that is so: whoever took from it
// what it led before, it knows. The zero time: there was none.
func (m *Machine) LastHeard() time.Time { return m.lastHeard }

// hear takes that a heartbeat was answered.
func (m *Machine) hear(in *Beaten) {
	sent := m.sent[in.Call%sentKept]
	if in.Fenced || sent.call != in.Call {
		return
	}
	sent.offset = in.Offset
	if m.counts.call == 0 || sent.offset <= m.counts.offset { // else metadata that come ever later would let none count
		m.counts = sent
	}
	m.count()
}

// count looks whether the metadata is here that an answer was by.
func (m *Machine) count() {
	if m.counts.call != 0 && m.seen.Offset >= m.counts.offset {
		m.lastHeard, m.counts = m.counts.at, hearing{}
	}
}

// own: the image has this very registration.
func (m *Machine) own() bool {
	return m.seen.Registered && m.seen.Incarnation == m.cfg.Incarnation && m.seen.Epoch == m.epoch
}

// Deadline is when Due is to be stepped. False: never again.
func (m *Machine) Deadline() (time.Time, bool) { return m.next, !m.ended }

// Step takes one input and appends what it asks for to out.
func (m *Machine) Step(now time.Time, in Input, out *Effects) {
	if m.ended {
		return
	}
	switch in := in.(type) {
	case *Seen:
		m.see(now, in, out)
	case *Registered:
		m.registered(now, in, out)
	case *Beaten:
		m.beaten(now, in, out)
	case *Offline:
		m.goOffline(now, in, out)
	case *Leave:
		m.leave(now, out)
	case *Due:
		if !now.Before(m.next) {
			m.due(now, out)
		}
	}
}

// see takes what the metadata says of this broker.
func (m *Machine) see(now time.Time, in *Seen, out *Effects) {
	if in.Offset < m.seen.Offset {
		return
	}
	fenced, own := m.Fenced(), m.own()
	m.seen = *in
	m.count()
	switch {
	case !in.Registered:
	case in.Incarnation == m.cfg.Incarnation:
		// The metadata may tell before the answer does, and also where that was lost.
		if in.Epoch > m.epoch {
			m.enrol(now, in.Epoch, out)
		}
	case m.epoch != 0 && in.Epoch > m.epoch:
		m.end(out, fmt.Errorf("another process has registered as this broker, under broker epoch %d: %w", in.Epoch, model.ErrDuplicateBroker))
		return
	}
	if m.epoch != 0 && len(out.Heartbeats) == 0 && (fenced != m.Fenced() || own != m.own()) {
		m.beat(now, out) // the sooner the controller knows that this broker has caught up, the better
	}
}

// enrol begins a registration.
func (m *Machine) enrol(now time.Time, epoch model.BrokerEpoch, out *Effects) {
	m.epoch, m.asking, m.retry = epoch, 0, m.cfg.RetryMin
	m.first, m.answered = m.call+1, m.call
	m.lastHeard, m.counts = time.Time{}, hearing{}
	m.tell(now)
	m.beat(now, out)
}

// goOffline takes which directories do not serve.
func (m *Machine) goOffline(now time.Time, in *Offline, out *Effects) {
	m.offline = slices.Clone(in.Directories)
	m.tell(now)
	if m.epoch != 0 {
		m.beat(now, out)
	}
}

// tell has the next heartbeat be the first that says which directories do not serve.
func (m *Machine) tell(now time.Time) {
	if len(m.offline) == 0 {
		m.tells, m.untold = 0, time.Time{}
		return
	}
	m.tells = m.call + 1
	if m.untold.IsZero() {
		m.untold = now
	}
}

func (m *Machine) registered(now time.Time, in *Registered, out *Effects) {
	if m.asking == 0 || in.Call != m.asking {
		return
	}
	if s := &m.seen; in.Err == nil && (in.Epoch > s.Epoch || in.Epoch == s.Epoch && s.Incarnation == m.cfg.Incarnation) {
		m.enrol(now, in.Epoch, out)
		return
	}
	// Also where it is refused: the lease of an earlier life may not be over yet.
	m.asking = 0
	m.next = now.Add(m.retry)
	m.retry = min(2*m.retry, m.cfg.RetryMax)
}

func (m *Machine) beaten(now time.Time, in *Beaten, out *Effects) {
	if m.epoch == 0 || in.Call < m.first || in.Call <= m.answered {
		return
	}
	switch {
	case in.Err == nil:
		m.answered = in.Call
		m.hear(in)
		if in.Call >= m.tells {
			m.tells, m.untold = 0, time.Time{}
		}
		if m.leaving && in.MayEnd {
			m.end(out, nil)
		}
	case errors.Is(in.Err, model.ErrStaleBrokerEpoch), errors.Is(in.Err, model.ErrBrokerIDNotRegistered):
		if m.leaving { // it is fenced, or forgotten: nobody waits for it
			m.end(out, nil)
			return
		}
		m.epoch = 0
		m.register(now, out)
	}
}

// leave gives up what the broker leads, and then ends.
func (m *Machine) leave(now time.Time, out *Effects) {
	if m.leaving {
		return
	}
	m.leaving = true
	if m.epoch == 0 {
		m.end(out, nil)
		return
	}
	m.beat(now, out)
}

func (m *Machine) due(now time.Time, out *Effects) {
	if !m.untold.IsZero() && now.Sub(m.untold) >= m.cfg.OfflineMax {
		m.end(out, fmt.Errorf("%d directories of this broker do not serve, and the controller has not heard of it for %v: what they hold can be led by others only without this broker: %w",
			len(m.offline), m.cfg.OfflineMax, model.ErrStorage))
		return
	}
	if m.epoch != 0 {
		m.beat(now, out)
		return
	}
	m.register(now, out)
}

func (m *Machine) register(now time.Time, out *Effects) {
	m.call++
	m.asking = m.call
	m.next = now.Add(m.cfg.RegisterMax)
	out.Register = &Register{Call: m.call, Incarnation: m.cfg.Incarnation}
}

// beat says that the broker lives.
func (m *Machine) beat(now time.Time, out *Effects) {
	m.next = now.Add(m.cfg.Every)
	m.call++
	m.sent[m.call%sentKept] = hearing{call: m.call, at: now}
	out.Heartbeats = append(out.Heartbeats, Heartbeat{Call: m.call, Epoch: m.epoch, Offset: m.seen.Offset, Leave: m.leaving, Offline: m.offline})
}

func (m *Machine) end(out *Effects, why error) {
	m.ended = true
	out.Ended = &Ended{Err: why}
}
