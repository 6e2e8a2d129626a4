package quorum

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/controller/command"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// The bodies of questions:
//
//	who      nothing
//	member   how byte, a member (wire.go), known byte: who asks has had the log
//	command  as core/controller/command writes an operation
//	status   nothing
//
// and of answers, after the version and the status:
//
//	done       offset uvarint, an answer as core/controller/command writes it
//	notLeader  endpoint text and node uvarint of who leads; "" if that is not known
//	foreign    cluster text
//	cluster    cluster text, "" for none; founding byte: it is to create one; node uvarint;
//	           16 bytes that tell who looks for a cluster from another of the same node ID
//	removed    offset uvarint: of the image that does not know who asks
//	quorum     a model.QuorumStatus in JSON
//	taken      nothing
type status byte

const (
	// statusDone: decided. The answer rests on what was committed up to offset.
	statusDone status = 1
	// statusNotLeader: nothing was done, ask who leads.
	statusNotLeader status = 2
	// statusForeign: nothing was done, this is another cluster.
	statusForeign status = 3
	// statusCluster answers who.
	statusCluster status = 4
	// statusRemoved: nothing was done, who asks was a member, and is none any more, if it does
	// not know better: a leader of before may not have heard yet that it has joined.
	statusRemoved status = 5
	// statusQuorum answers how the quorum is.
	statusQuorum status = 6
	// statusTaken: nothing was done, another process was heard just now that has the
	// directory of who asks.
	statusTaken status = 7
)

const (
	// askTimeout bounds a question to another node.
	askTimeout = 5 * time.Second
	// questionsMax bounds the questions of others that wait here; more are answered with
	// statusNotLeader.
	questionsMax = 1024
)

// question is another node's, on its way to the loop.
type question struct {
	kind  wireKind
	from  sender
	body  []byte
	reply func(answer []byte)
}

// Question takes a question that was given to another node's Peers, and calls reply with
// the answer, once, on the loop or before Question returns; it must not block. The
// question's bytes are the node's from then on. Question never waits.
func (n *Node) Question(b []byte, reply func(answer []byte)) {
	kind, from, body, err := decodeHeader(b)
	switch {
	case err != nil:
		reply(doneAnswer(0, controller.Answer{Err: fmt.Errorf("%w: %w", err, model.ErrInvalidRequest)}))
		return
	case kind == kindWho:
		reply(appendCluster(n.identity, false))
		reply = func([]byte) {} // and the loop hears where the other is
	}
	q := &question{kind: kind, from: from, body: body}
	q.reply = func(answer []byte) {
		n.questions.Add(-1)
		reply(answer)
	}
	if n.questions.Add(1) > questionsMax || !n.loop.Complete(Input{question: q}) {
		q.reply(notLeader(Address{}))
	}
}

// answer gives another node's question to the controller, or says who leads.
func (n *Node) answer(q *question) {
	if q.kind == kindWho && q.from.DirectoryID.IsZero() {
		q.reply(nil) // it has no cluster yet
		return
	}
	if n.stranger(q.from) {
		q.reply(appendText([]byte{wireVersion, byte(statusForeign)}, string(n.identity.ClusterID)))
		return
	}
	switch heard := n.hear(q.from); {
	case q.kind == kindWho:
		q.reply(nil)
		return
	case !heard:
		q.reply([]byte{wireVersion, byte(statusTaken)})
		return
	case q.kind == kindCommand && n.forgotten(q.from):
		q.reply(removedAnswer(n.Image().Offset))
		return
	}
	r := &request{remote: true, expires: n.now.Add(askTimeout)}
	r.reply = func(a controller.Answer) { q.reply(doneAnswer(n.Image().Offset, a)) }
	r.refuse = func() {
		to, _ := n.address(n.raft.BasicStatus().Lead)
		q.reply(notLeader(to))
	}
	var err error
	switch q.kind {
	case kindCommand:
		r.op, err = command.DecodeOp(q.body)
	case kindMember:
		r.member, err = decodeMemberChange(q.body)
		if err == nil && r.member.how == memberAnnounced {
			r.removed = func() { q.reply(removedAnswer(n.Image().Offset)) }
		}
	case kindStatus:
		r.described = func(s model.QuorumStatus) { q.reply(describedAnswer(s)) }
	default:
		err = fmt.Errorf("a question of kind %d: %w: %w", q.kind, ErrMalformed, model.ErrInvalidRequest)
	}
	if err != nil {
		r.reply(controller.Answer{Err: err})
		return
	}
	n.accept(r)
}

// forgotten says whether who asks is no member, as this node knows, which leads. A message that
// was on its way when it was removed has told it who that is.
func (n *Node) forgotten(from sender) bool {
	_, member := n.Image().Member(from.DirectoryID)
	return n.leading.Load() && !member
}

func doneAnswer(offset int64, a controller.Answer) []byte {
	b := binary.AppendUvarint([]byte{wireVersion, byte(statusDone)}, uint64(offset))
	return append(b, command.EncodeAnswer(a)...)
}

func removedAnswer(offset int64) []byte {
	return binary.AppendUvarint([]byte{wireVersion, byte(statusRemoved)}, uint64(offset))
}

func describedAnswer(s model.QuorumStatus) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("quorum: a status of %d voters has no JSON: %v", len(s.Voters), err))
	}
	return append([]byte{wireVersion, byte(statusQuorum)}, b...)
}

func notLeader(leader Address) []byte {
	b := appendText([]byte{wireVersion, byte(statusNotLeader)}, leader.Endpoint)
	return binary.AppendUvarint(b, uint64(max(leader.Node, 0)))
}

func appendCluster(id Identity, founding bool) []byte {
	b := append(appendText([]byte{wireVersion, byte(statusCluster)}, string(id.ClusterID)), bit(founding))
	b = binary.AppendUvarint(b, uint64(id.NodeID))
	return append(b, id.DirectoryID[:]...)
}

// answer is another node's answer, as far as it could be read.
type answer struct {
	status   status
	offset   int64
	answer   controller.Answer
	leader   Address
	quorum   model.QuorumStatus
	cluster  model.ClusterID // of foreign
	of       Identity        // of cluster
	founding bool
}

func decodeAnswer(b []byte) (answer, error) {
	r := reader{in: b}
	version := r.byte()
	a := answer{status: status(r.byte()), leader: Address{Node: model.NoNode}}
	switch a.status {
	case statusDone:
		a.offset = int64(r.uvarint())
		if !r.bad && a.offset >= 0 {
			var err error
			if a.answer, err = command.DecodeAnswer(r.in); err != nil {
				return answer{}, err
			}
		}
	case statusNotLeader:
		a.leader = Address{Endpoint: r.text(), Node: r.node()}
	case statusForeign:
		a.cluster = model.ClusterID(r.text())
	case statusCluster:
		a.of.ClusterID, a.founding = model.ClusterID(r.text()), r.byte() == 1
		a.of.NodeID, a.of.DirectoryID = r.node(), r.directory()
	case statusRemoved:
		a.offset = int64(r.uvarint())
	case statusTaken:
	case statusQuorum:
		if err := json.Unmarshal(r.in, &a.quorum); err != nil {
			return answer{}, fmt.Errorf("a status: %w: %w", err, ErrMalformed)
		}
	default:
		r.bad = true
	}
	if r.bad || version != wireVersion || a.offset < 0 {
		return answer{}, fmt.Errorf("an answer of %d bytes: %w", len(b), ErrMalformed)
	}
	return a, nil
}

// asked is what came of a question of this node's own.
type asked struct {
	id     uint64
	answer []byte
	err    error
}

// ask puts a question, and has f called on the loop with what comes of it.
func (n *Node) ask(to Address, kind wireKind, body []byte, f func(answer, error)) {
	n.nextAsk++
	id := n.nextAsk
	n.asking[id] = f
	q := append(header(kind, n.self()), body...)
	n.deps.Peers.Ask(to, q, askTimeout, func(b []byte, err error) {
		n.loop.Complete(Input{asked: &asked{id: id, answer: b, err: err}})
	})
}

func (n *Node) heardAnswer(in *asked) {
	f, ok := n.asking[in.id]
	if !ok {
		return
	}
	delete(n.asking, in.id)
	if in.err != nil {
		f(answer{}, in.err)
		return
	}
	f(decodeAnswer(in.answer))
}

// question is a request as another node is asked it.
func (r *request) question() (wireKind, []byte, error) {
	switch {
	case r.described != nil:
		return kindStatus, nil, nil
	case r.member != nil:
		return kindMember, r.member.encode(), nil
	}
	body, err := command.EncodeOp(r.op)
	return kindCommand, body, err
}

// forward asks who leads. What comes of a command whose answer is lost is not known.
func (n *Node) forward(to Address, r *request) {
	kind, body, err := r.question()
	if err != nil {
		r.reply(controller.Answer{Err: err})
		return
	}
	f := &forwarded{r: r}
	n.forwarded = append(n.forwarded, f)
	n.ask(to, kind, body, func(a answer, err error) {
		at := slices.Index(n.forwarded, f)
		if at < 0 {
			return
		}
		n.forwarded = slices.Delete(n.forwarded, at, at+1)
		switch {
		case errors.Is(err, transport.ErrRefused):
			n.hold(r)
		case err != nil:
			n.lost(r, fmt.Errorf("asking broker %d, which leads: %w: %w", to.Node, err, model.ErrNotController))
		case a.status == statusRemoved:
			n.announce.doubted = true
			n.hold(r)
		case a.status == statusNotLeader, a.status == statusTaken:
			n.hold(r)
		case a.status == statusQuorum && r.described != nil:
			r.described(a.quorum)
		case a.status == statusDone:
			n.awaiting = append(n.awaiting, awaited{a.offset, r, a.answer})
		default:
			r.reply(controller.Answer{Err: fmt.Errorf("broker %d is not of this cluster: %w", to.Node, model.ErrNotController)})
		}
	})
}

// forwarded is a request that who leads was asked.
type forwarded struct {
	r *request
	// left are the ticks in which an answer may still come from one who leads no longer; 0:
	// that one leads.
	left int
}

// awaited is an answer of who leads, which is given once the image here has what it rests
// on: who asked sees what it did.
type awaited struct {
	offset int64
	r      *request
	answer controller.Answer
}

// releaseAwaited gives the answers whose offset the image has reached.
func (n *Node) releaseAwaited() {
	at, left := n.Image().Offset, n.awaiting[:0]
	for _, a := range n.awaiting {
		if a.offset > at {
			left = append(left, a)
			continue
		}
		a.r.reply(a.answer)
	}
	clear(n.awaiting[len(left):])
	n.awaiting = left
}

// leaderGone gives those who were asked to lead and no longer do some time to answer: one
// that has handed over says that it has done nothing.
func (n *Node) leaderGone() {
	for _, f := range n.forwarded {
		if f.left == 0 {
			f.left = max(2, n.cfg.ElectionTicks/2)
		}
	}
}

// tickForwarded answers what was asked of one who leads no longer, and says nothing.
func (n *Node) tickForwarded() {
	var abandoned []*forwarded
	n.forwarded = slices.DeleteFunc(n.forwarded, func(f *forwarded) bool {
		if f.left == 0 {
			return false
		}
		f.left--
		if f.left == 0 {
			abandoned = append(abandoned, f)
		}
		return f.left == 0
	})
	for _, f := range abandoned {
		n.lost(f.r, fmt.Errorf("the leader that was asked leads no longer: %w", model.ErrNotController))
	}
}

// lost is for a request of which it is not known whether it was done: it is asked again if
// that does no harm.
func (n *Node) lost(r *request, err error) {
	switch r.op.(type) {
	case controller.AllocateProducerIDs, controller.Heartbeat, controller.RegisterBroker, controller.ConfirmRemoval:
		n.hold(r)
	default:
		r.reply(controller.Answer{Err: err})
	}
}

// leader is who else leads, and where it is asked.
func (n *Node) leader() (Address, bool) {
	lead := n.raft.BasicStatus().Lead
	if lead == n.raftID || n.deps.Peers == nil || !n.hasLeader() {
		return Address{}, false
	}
	return n.address(lead)
}

// hasLeader says whether somebody leads who was heard from of late. Raft keeps a learner in
// the belief that a leader is there.
func (n *Node) hasLeader() bool {
	lead := n.raft.BasicStatus().Lead
	p := n.peers[lead]
	return lead != raft.None && (lead == n.raftID || p != nil && p.silent <= 2*n.cfg.ElectionTicks)
}
