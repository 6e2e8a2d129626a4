package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

// request is a command on its way to the loop.
type request struct {
	op     controller.Op
	member *memberChange // or a change of one member
	// or what takes how the quorum is
	described func(model.QuorumStatus)
	// reply is called once, on the loop, and must not block.
	reply func(controller.Answer)
	gone  <-chan struct{} // closed when the caller no longer waits; nil: he does

	// remote: another node asks, which finds who leads by itself: refuse, instead of reply,
	// tells it that nothing was done here. removed tells it that it is no member.
	remote  bool
	refuse  func()
	removed func()
	expires time.Time // of remote: it waits no longer
}

// Start has the active controller decide op, without waiting: done is called once with
// the answer, when that is committed and in this node's image, on the loop's goroutine,
// and must not block. Where Run has ended, or gone is closed before the command was begun,
// done may be called at once, or never. Who calls it bounds how much is under way.
func (n *Node) Start(op controller.Op, gone <-chan struct{}, done func(controller.Answer)) {
	n.start(&request{op: op, gone: gone, reply: done})
}

func (n *Node) start(r *request) {
	if !n.loop.Complete(Input{request: r}) {
		r.reply(controller.Answer{Err: &stoppedError{n.failure}})
	}
}

// do has the active controller decide op, and waits until that is committed and
// in this node's image. When ctx ends first, the change may still happen.
func (n *Node) do(ctx context.Context, op controller.Op) (controller.Answer, error) {
	return n.wait(ctx, &request{op: op})
}

// wait gives a request to the loop, and waits for the answer.
func (n *Node) wait(ctx context.Context, r *request) (controller.Answer, error) {
	// There is room for the answer, so that the loop never waits for the caller.
	reply := make(chan controller.Answer, 1)
	r.reply, r.gone = func(a controller.Answer) { reply <- a }, ctx.Done()
	switch err := n.loop.Post(ctx, Input{request: r}); {
	case errors.Is(err, loop.ErrClosed):
		<-n.stopped
		return controller.Answer{}, &stoppedError{n.failure}
	case err != nil:
		return controller.Answer{}, interrupted(ctx)
	}
	select {
	case a := <-reply:
		return a, a.Err
	case <-ctx.Done():
		return controller.Answer{}, interrupted(ctx)
	}
}

func interrupted(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &unansweredError{ctx.Err()}
	}
	return fmt.Errorf("waiting for the controller: %w", ctx.Err())
}

// unansweredError is ErrRequestTimedOut, for whoever has waited in vain for what the active
// controller decides.
type unansweredError struct{ cause error }

func (e *unansweredError) Error() string {
	return "no active controller has answered in time: more than half of the voters have to be up and reach each other; `brokerd cluster status` shows them"
}

func (e *unansweredError) Unwrap() []error { return []error{e.cause, model.ErrRequestTimedOut} }

// stoppedError is ErrNotController, with what ended Run, or nil.
type stoppedError struct{ failure error }

func (e *stoppedError) Error() string {
	if e.failure == nil {
		return "the controller has stopped"
	}
	return "the controller has stopped: " + e.failure.Error()
}

func (e *stoppedError) Unwrap() error { return e.failure }

func (e *stoppedError) Is(target error) bool { return target == model.ErrNotController }

// accept gives a request to the machine or to who leads instead, or keeps it while nobody
// is known to.
func (n *Node) accept(r *request) {
	if n.abandoned(r) {
		if r.remote {
			r.refuse()
		}
		return
	}
	to, elsewhere := n.leader()
	switch {
	case n.ended && r.remote:
		r.refuse()
	case n.ended:
		r.reply(controller.Answer{Err: &stoppedError{n.failure}})
	case n.leading.Load() && n.stopping:
		n.hold(r)
	case n.leading.Load() && r.described != nil:
		n.describe(r)
	case n.leading.Load() && r.member != nil:
		n.decideMember(r)
	case n.leading.Load():
		n.command(r)
	case n.elected:
		n.hold(r)
	case r.remote:
		r.refuse()
	case elsewhere && len(n.forwarded)+len(n.awaiting) < heldRequests:
		n.forward(to, r)
	default:
		n.hold(r)
	}
}

// abandoned says whether nobody waits for the answer.
func (n *Node) abandoned(r *request) bool {
	select {
	case <-r.gone:
		return true
	default:
		return r.remote && !n.now.Before(r.expires)
	}
}

func (n *Node) command(r *request) {
	if err := n.refusal(r.op); err != nil {
		r.reply(controller.Answer{Err: err})
		return
	}
	n.nextID++
	n.replies[n.nextID] = r
	n.step(controller.Command{ID: n.nextID, Op: r.op})
}

// hold keeps a request until somebody leads, or its turn has come.
func (n *Node) hold(r *request) {
	switch {
	case len(n.held) < heldRequests:
		n.held = append(n.held, r)
	case r.remote:
		r.refuse()
	default:
		r.reply(controller.Answer{Err: model.ErrNotController})
	}
}

// acceptHeld tries again what was kept.
func (n *Node) acceptHeld() {
	held := n.held
	n.held = nil
	for _, r := range held {
		n.accept(r)
	}
}

// step runs the machine: proposals go to Raft at once, answers wait for release.
func (n *Node) step(input controller.Input) {
	n.machine.Step(n.now, input, &n.effects)
	proposals := n.effects.Propose
	n.answered = append(n.answered, n.effects.Respond...)
	for _, notice := range n.effects.Notices {
		n.tell(notice)
	}
	if c := n.effects.Counts; c != (controller.Counts{}) {
		n.countUp(c)
	}
	n.effects = controller.Effects{}
	for _, p := range proposals {
		if err := n.raft.Propose(encodeEntry(n.session, p.ID, p.Records)); err != nil {
			n.proposalDropped(err)
			return
		}
	}
}

// tell logs what the controller has to say.
func (n *Node) tell(notice controller.Notice) {
	level := slog.LevelInfo
	if notice.Warn {
		level = slog.LevelWarn
	}
	var attrs []slog.Attr
	if notice.Broker != model.NoNode {
		attrs = append(attrs, slog.Int("broker", int(notice.Broker)))
	}
	if notice.Topic != "" {
		attrs = append(attrs, slog.String("topic", notice.Topic), slog.Any("partitions", notice.Partitions))
	}
	n.log.LogAttrs(context.Background(), level, notice.Text, attrs...)
}

// proposalDropped begins the machine's leadership anew: its proposals are a
// chain, of which one is missing.
func (n *Node) proposalDropped(err error) {
	n.log.Warn("a change of the metadata was not accepted", "err", err)
	n.leadAnew()
}

// leadAnew has the machine decide nothing before all that was proposed is applied.
func (n *Node) leadAnew() {
	n.leading.Store(false)
	n.session = session{}
	n.leadFrom = unsettled
	n.abandonChange()
	n.step(controller.Resign{})
}

// release sends the answers whose changes are in the published image.
func (n *Node) release() {
	for _, a := range n.answered {
		if r, ok := n.replies[a.ID]; ok {
			delete(n.replies, a.ID)
			r.reply(a.Answer)
		}
	}
	n.answered = n.answered[:0]
	var done []*request
	if !n.leading.Load() || len(n.conf.GetVotersOutgoing()) == 0 { // else those of before vote still
		done, n.changesDone = n.changesDone, nil
	}
	if len(done) > 0 {
		n.view() // who asked for a change sees it
	}
	for _, r := range done {
		r.reply(controller.Answer{})
	}
	n.releaseAwaited()
}

// CreateTopics makes topics, each on its own: see the results. It returns when
// they are durable and in Image.
func (n *Node) CreateTopics(ctx context.Context, topics []model.NewTopic, validateOnly bool) ([]model.TopicResult, error) {
	a, err := n.do(ctx, controller.CreateTopics{Topics: topics, ValidateOnly: validateOnly})
	return a.Topics, err
}

// DeleteTopics removes topics, each on its own: see the results.
func (n *Node) DeleteTopics(ctx context.Context, topics []model.TopicRef) ([]model.TopicResult, error) {
	a, err := n.do(ctx, controller.DeleteTopics{Topics: topics})
	return a.Topics, err
}

// CreatePartitions grows topics, each on its own: see the errors.
func (n *Node) CreatePartitions(ctx context.Context, more []model.MorePartitions, validateOnly bool) ([]error, error) {
	a, err := n.do(ctx, controller.CreatePartitions{More: more, ValidateOnly: validateOnly})
	return a.Errs, err
}

// AlterConfigs changes settings, each resource on its own: see the errors.
func (n *Node) AlterConfigs(ctx context.Context, changes []model.ConfigChange, validateOnly bool) ([]error, error) {
	a, err := n.do(ctx, controller.AlterConfigs{Changes: changes, ValidateOnly: validateOnly})
	return a.Errs, err
}

// AllocateProducerIDs gives a block that nobody else gets. (KIP-730)
func (n *Node) AllocateProducerIDs(ctx context.Context) (model.ProducerIDBlock, error) {
	a, err := n.do(ctx, controller.AllocateProducerIDs{})
	return a.ProducerIDs, err
}

// RegisterBroker makes a broker known, and returns the epoch of its registration. It is
// fenced until a heartbeat that has caught up with it. Asked twice with the same
// incarnation, it gives the same epoch.
func (n *Node) RegisterBroker(ctx context.Context, r Registration) (model.BrokerEpoch, error) {
	a, err := n.do(ctx, controller.RegisterBroker{Registration: r})
	return a.Epoch, err
}

// Heartbeat says that a broker is there, and returns what it may do.
func (n *Node) Heartbeat(ctx context.Context, beat controller.Heartbeat) (controller.HeartbeatAnswer, error) {
	a, err := n.do(ctx, beat)
	return a.Heartbeat, err
}

// AlterISR asks for other ISRs of partitions that a broker leads: see the results.
func (n *Node) AlterISR(ctx context.Context, op controller.AlterISR) ([]model.ISRResult, error) {
	a, err := n.do(ctx, op)
	return a.ISR, err
}

// ElectLeaders has partitions led by their preferred replicas, or by any, each on its
// own: see the errors.
func (n *Node) ElectLeaders(ctx context.Context, partitions []model.Partition, unclean bool) ([]error, error) {
	a, err := n.do(ctx, controller.ElectLeaders{Partitions: partitions, Unclean: unclean})
	return a.Errs, err
}

// AlterReassignments gives partitions other replicas, each on its own: see the errors.
// It returns when that has begun; the image tells when it is done. (KIP-455)
func (n *Node) AlterReassignments(ctx context.Context, changes []model.Reassignment) ([]error, error) {
	a, err := n.do(ctx, controller.AlterReassignments{Changes: changes})
	return a.Errs, err
}

// ReportLogs says how long a broker's logs are: see controller.ReportLogs.
func (n *Node) ReportLogs(ctx context.Context, op controller.ReportLogs) error {
	_, err := n.do(ctx, op)
	return err
}

// FenceBroker takes leadership and ISR membership from a broker, until its next
// heartbeat.
func (n *Node) FenceBroker(ctx context.Context, id model.NodeID, epoch model.BrokerEpoch) error {
	_, err := n.do(ctx, controller.FenceBroker{ID: id, Epoch: epoch})
	return err
}

// UnregisterBroker forgets a broker.
func (n *Node) UnregisterBroker(ctx context.Context, id model.NodeID, epoch model.BrokerEpoch) error {
	_, err := n.do(ctx, controller.UnregisterBroker{ID: id, Epoch: epoch})
	return err
}

// ConfirmRemoval says that a directory no longer holds logs of these removed
// topics: they need not be remembered for it. Asked twice it does nothing.
func (n *Node) ConfirmRemoval(ctx context.Context, dir model.DirectoryID, topics []model.TopicID) error {
	_, err := n.do(ctx, controller.ConfirmRemoval{Directory: dir, Topics: topics})
	return err
}
