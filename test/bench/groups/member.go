package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	session        = 45 * time.Second
	rebalance      = 60 * time.Second
	heartbeatEvery = 3 * time.Second
	requestWait    = 90 * time.Second
	topic          = "offsets"
)

// member is a member of a group, as a consumer without anything to consume.
type member struct {
	group string
	board *board

	id         string
	generation int32
	leader     bool
	members    []string
}

// board is where members tell in which generation they have an assignment.
type board struct {
	mu     sync.Mutex
	synced map[*member]credential
	beaten map[*member]time.Time
}

// credential is what a member commits with.
type credential struct {
	id         string
	generation int32
}

func newBoard() *board {
	return &board{synced: make(map[*member]credential), beaten: make(map[*member]time.Time)}
}

// tell says that a member holds an assignment, and has just been answered so; a
// generation below 0: that it holds none.
func (b *board) tell(m *member, generation int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if generation < 0 {
		delete(b.synced, m)
		return
	}
	b.synced[m] = credential{m.id, generation}
	b.beaten[m] = time.Now()
}

// credential is what the member commits with now.
func (b *board) credential(m *member) (credential, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.synced[m]
	return c, ok
}

// all is what every member that has an assignment commits with.
func (b *board) all() map[*member]credential {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.synced)
}

// agree reports whether so many members have an assignment, all of each group's in one
// generation.
func (b *board) agree(members int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.synced) != members {
		return false
	}
	of := make(map[string]int32)
	for m, c := range b.synced {
		if was, ok := of[m.group]; ok && was != c.generation {
			return false
		}
		of[m.group] = c.generation
	}
	return true
}

// heard reports whether so many members have been answered well since a time.
func (b *board) heard(since time.Time, members int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for m, at := range b.beaten {
		if _, in := b.synced[m]; in && at.After(since) {
			n++
		}
	}
	return n == members
}

// run is a member until ctx ends. It comes back after every error.
func (m *member) run(ctx context.Context, addr string) {
	m.generation = -1
	for ctx.Err() == nil {
		if err := m.live(ctx, addr); err != nil && ctx.Err() == nil {
			rpc.Pause(ctx, 100*time.Millisecond)
		}
	}
}

func (m *member) live(ctx context.Context, addr string) error {
	c, err := rpc.Dial(ctx, addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	defer c.Close()
	for {
		if m.generation < 0 {
			if err := m.join(c); err != nil {
				return err
			}
		}
		if err := m.beat(ctx, c); err != nil {
			return err
		}
	}
}

// beat sends heartbeats until the group rebalances.
func (m *member) beat(ctx context.Context, c *rpc.Conn) error {
	for {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Version, req.Group, req.Generation, req.MemberID = 4, m.group, m.generation, m.id
		resp, err := rpc.Ask[*kmsg.HeartbeatResponse](c, req, requestWait)
		if err != nil {
			return err
		}
		switch err := kerr.ErrorForCode(resp.ErrorCode); {
		case err == nil:
			m.board.tell(m, m.generation)
		case errors.Is(err, kerr.CoordinatorLoadInProgress), errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.NotCoordinator):
			rpc.Pause(ctx, 100*time.Millisecond)
			continue
		case errors.Is(err, kerr.RebalanceInProgress):
			m.lost()
			return nil
		default:
			m.id = ""
			m.lost()
			return nil
		}
		if !rpc.Pause(ctx, heartbeatEvery) {
			return ctx.Err()
		}
	}
}

func (m *member) lost() {
	m.generation = -1
	m.board.tell(m, -1)
}

// join joins and syncs, until it has an assignment.
func (m *member) join(c *rpc.Conn) error {
	for {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version, req.Group, req.MemberID, req.ProtocolType = 9, m.group, m.id, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(session.Milliseconds()), int32(rebalance.Milliseconds())
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription()}}
		resp, err := rpc.Ask[*kmsg.JoinGroupResponse](c, req, requestWait)
		if err != nil {
			return err
		}
		switch err := kerr.ErrorForCode(resp.ErrorCode); {
		case errors.Is(err, kerr.MemberIDRequired):
			m.id = resp.MemberID
			continue
		case errors.Is(err, kerr.UnknownMemberID):
			m.id = ""
			continue
		case err != nil:
			return fmt.Errorf("join: %w", err)
		}
		m.id, m.generation, m.leader, m.members = resp.MemberID, resp.Generation, resp.LeaderID == resp.MemberID, nil
		for _, j := range resp.Members {
			m.members = append(m.members, j.MemberID)
		}
		if err := m.sync(c); err != nil {
			m.generation = -1
			if errors.Is(err, kerr.RebalanceInProgress) {
				continue
			}
			return err
		}
		m.board.tell(m, m.generation)
		return nil
	}
}

func (m *member) sync(c *rpc.Conn) error {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.Generation, req.MemberID = 5, m.group, m.generation, m.id
	consumer, protocol := "consumer", "range"
	req.ProtocolType, req.Protocol = &consumer, &protocol
	if m.leader {
		for i, id := range m.members {
			a := kmsg.NewConsumerMemberAssignment()
			t := kmsg.NewConsumerMemberAssignmentTopic()
			t.Topic, t.Partitions = topic, []int32{int32(i)}
			a.Topics = append(a.Topics, t)
			req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: a.AppendTo(nil)})
		}
	}
	resp, err := rpc.Ask[*kmsg.SyncGroupResponse](c, req, requestWait)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

func subscription() []byte {
	s := kmsg.NewConsumerMemberMetadata()
	s.Topics = []string{topic}
	return s.AppendTo(nil)
}
