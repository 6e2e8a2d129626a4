package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

// request is a command on its way to the loop.
type request struct {
	op controller.Op
	// reply is called once, on the loop, and must not block.
	reply func(controller.Answer)
	gone  <-chan struct{} // closed when the caller no longer waits; nil: he does
}

// Start has the active controller decide op, without waiting: done is called once with
// the answer, when that is committed and in this node's image, on the loop's goroutine,
// and must not block. Where Run has ended, or gone is closed before the command was begun,
// done may be called at once, or never.
func (n *Node) Start(op controller.Op, gone <-chan struct{}, done func(controller.Answer)) {
	if !n.loop.Complete(Input{request: &request{op: op, gone: gone, reply: done}}) {
		done(controller.Answer{Err: &stoppedError{n.failure}})
	}
}

// do has the active controller decide op, and waits until that is committed and
// in this node's image. When ctx ends first, the change may still happen.
func (n *Node) do(ctx context.Context, op controller.Op) (controller.Answer, error) {
	// There is room for the answer, so that the loop never waits for the caller.
	reply := make(chan controller.Answer, 1)
	r := &request{op: op, reply: func(a controller.Answer) { reply <- a }, gone: ctx.Done()}
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
		return fmt.Errorf("waiting for the controller: %w: %w", ctx.Err(), model.ErrRequestTimedOut)
	}
	return fmt.Errorf("waiting for the controller: %w", ctx.Err())
}

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

// accept gives a request to the machine, or keeps it while there is no leader
// that could be asked instead.
func (n *Node) accept(r *request) {
	select {
	case <-r.gone:
		return
	default:
	}
	refused := n.refusal(r.op)
	switch {
	case n.ended:
		r.reply(controller.Answer{Err: &stoppedError{n.failure}})
	case n.leading.Load() && refused != nil:
		r.reply(controller.Answer{Err: refused})
	case n.leading.Load():
		n.nextID++
		n.replies[n.nextID] = r
		n.step(controller.Command{ID: n.nextID, Op: r.op})
	case (n.elected || n.raft.BasicStatus().Lead == raft.None) && len(n.held) < heldRequests:
		n.held = append(n.held, r)
	default:
		r.reply(controller.Answer{Err: model.ErrNotController})
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
	n.leading.Store(false)
	n.session = session{}
	n.leadFrom = unsettled
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
