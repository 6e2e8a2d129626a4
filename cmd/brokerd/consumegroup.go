package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// leaveTimeout bounds the goodbye to a group.
	leaveTimeout = 5 * time.Second
	// commitTimeout bounds a commit, also one that is under way when the command is
	// interrupted.
	commitTimeout = 10 * time.Second
	// joinNotice is how long a member waits in silence to be let in.
	joinNotice = 5 * time.Second
)

// checkGroup refuses what does not go with --group: the group says where to begin,
// and its assignor which partitions are read.
func (s *consuming) checkGroup(cmd *cobra.Command) error {
	switch {
	case s.group == "" && cmd.Flags().Changed("group"):
		return usagef(cmd, "--group names no group") // a script's variable that is not set
	case s.group == "":
		return nil
	case s.offset != "":
		return usagef(cmd, "--offset does not go with --group, which begins where the group is; `brokerd group reset-offsets` moves it")
	case s.fromTime != "":
		return usagef(cmd, "--from-time does not go with --group, which begins where the group is; `brokerd group reset-offsets` moves it")
	case len(s.partitions) > 0:
		return usagef(cmd, "-p does not go with --group, which shares the partitions out")
	}
	return nil
}

// membership is one member's part of a group.
type membership struct {
	s      *consuming
	client *kgo.Client
	admin  *kadm.Client
	spans  map[int32]span // of all partitions, when the command started

	mu   sync.Mutex
	mine map[int32]bool // assigned now; nil before the first assignment
	// pending is the last printed record of each of mine whose commit is still to be
	// acknowledged.
	pending map[int32]*kgo.Record

	// The rest belongs to poll.
	since time.Time // when it began to join
	told  bool      // that it waits

	next map[int32]int64 // to read, of partitions that were read
	seen map[int32]bool  // of mine, those that ended has looked at
	left map[int32]bool  // of seen, those that have not reached their end
}

// runGroup consumes as a member of s.group, and commits what was printed.
func (s *consuming) runGroup(ctx context.Context, c *console, at cluster, spans map[int32]span) error {
	m := &membership{s: s, spans: spans, since: time.Now(), pending: make(map[int32]*kgo.Record),
		next: make(map[int32]int64), seen: make(map[int32]bool), left: make(map[int32]bool)}
	reset := kgo.NewOffset().AtEnd()
	if s.beginning {
		reset = kgo.NewOffset().AtStart()
	}
	lost := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.assigned(gone[s.topic], false) }
	opts := append(s.fetchOptions(),
		kgo.ConsumerGroup(s.group), kgo.ConsumeTopics(s.topic), kgo.ConsumeResetOffset(reset),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, now map[string][]int32) { m.assigned(now[s.topic], true) }),
		kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost), // what was printed is committed
	)
	client, err := at.connect(ctx, opts...)
	if err != nil {
		return err
	}
	m.client, m.admin = client, kadm.NewClient(client)
	defer m.leave(ctx)
	out := bufio.NewWriterSize(c.out, outputBytes)
	err = m.poll(ctx, c, out)
	if flushed := out.Flush(); flushed != nil && !errors.Is(err, flushed) {
		err = errors.Join(err, fmt.Errorf("print records: %w", flushed))
	}
	return err
}

// assigned notes which partitions this member has.
func (m *membership) assigned(partitions []int32, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mine == nil {
		m.mine = make(map[int32]bool)
	}
	for _, p := range partitions {
		if mine {
			m.mine[p] = true
		} else {
			delete(m.mine, p)
			delete(m.pending, p) // who has it next reads it again
		}
	}
}

// leave lets the others have the partitions at once.
func (m *membership) leave(ctx context.Context) {
	m.client.AllowRebalance()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_ = m.client.LeaveGroupContext(ctx) // else the group waits until the session ends
	m.client.Close()
}

func (m *membership) poll(ctx context.Context, c *console, out *bufio.Writer) error {
	write, err := m.s.printer(out)
	if err != nil {
		return err
	}
	var printed int64
	for {
		fetches, err := m.fetch(ctx)
		if err != nil {
			return err
		}
		if err := m.tellWait(c); err != nil {
			return err
		}
		done, err := m.print(fetches, write, &printed)
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			return fmt.Errorf("print records: %w", err)
		}
		if err := m.commit(ctx, c, done); err != nil {
			return err
		}
		if m.s.count > 0 && printed >= m.s.count {
			return nil
		}
		for _, e := range fetches.Errors() {
			if err := m.fetchError(e); err != nil {
				return err
			}
		}
		if ended, err := m.ended(ctx); ended || err != nil {
			return err
		}
		m.client.AllowRebalance()
	}
}

// fetch is what there is to print, which is nothing after some time without.
func (m *membership) fetch(ctx context.Context) (kgo.Fetches, error) {
	wait, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	fetches := m.client.PollFetches(wait)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if errors.Is(fetches.Err0(), context.DeadlineExceeded) {
		return nil, nil
	}
	return fetches, nil
}

// tellWait says once that the group has not let this member in yet.
func (m *membership) tellWait(c *console) error {
	m.mu.Lock()
	joined := m.mine != nil
	m.mu.Unlock()
	if joined || m.told || time.Since(m.since) < joinNotice {
		return nil
	}
	m.told = true
	_, err := fmt.Fprintf(c.err, "waiting to be a member of group %s, whose coordinator has not let it in yet; the broker's log says why if it cannot\n", m.s.group)
	return err
}

// print writes records, and returns those that may be committed.
func (m *membership) print(fetches kgo.Fetches, write func(*kgo.Record) error, printed *int64) ([]*kgo.Record, error) {
	var done []*kgo.Record
	for _, r := range fetches.Records() {
		end := m.spans[r.Partition].end
		if r.Offset >= end-1 {
			delete(m.left, r.Partition)
		}
		if m.s.exitAtEnd && r.Offset >= end {
			continue // it came later, and is for who comes later
		}
		m.next[r.Partition] = r.Offset + 1
		done = append(done, r)
		if r.Attrs.IsControl() {
			continue
		}
		if err := write(r); err != nil {
			return nil, err
		}
		if *printed++; m.s.count > 0 && *printed >= m.s.count {
			break
		}
	}
	return done, nil
}

// moved reports whether an error says no more than that the group goes on in
// another way: the client joins it again by itself.
func moved(err error) bool {
	return errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.UnknownMemberID)
}

// cutOff reports whether an error is one of the way to a broker, which may be starting
// again: the client looks for it by itself.
func cutOff(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) || kgo.IsRetryableBrokerErr(err)
}

// fetchError says whether an error ends the command, and how.
func (m *membership) fetchError(e kgo.FetchError) error {
	var session *kgo.ErrGroupSession
	if !errors.As(e.Err, &session) {
		return m.s.fetchError(e, m.position(e.Partition))
	}
	if moved(session.Err) || kerr.IsRetriable(session.Err) || cutOff(session.Err) {
		return nil
	}
	return groupError("consume as a member of", m.s.group, session.Err, "")
}

// position is the offset that is to be read next in a partition.
func (m *membership) position(partition int32) int64 {
	if next, ok := m.next[partition]; ok {
		return next
	}
	if o, ok := m.client.CommittedOffsets()[m.s.topic][partition]; ok && o.Offset >= 0 {
		return o.Offset // where the group was when the member came
	}
	return m.spans[partition].from
}

// commit says that the records were printed. It does so even if the command is
// interrupted between the two. Where the group has moved on meanwhile, they are
// committed the next time if this member has kept their partitions.
func (m *membership) commit(ctx context.Context, c *console, records []*kgo.Record) error {
	m.mu.Lock()
	for _, r := range records {
		m.pending[r.Partition] = r
	}
	last := slices.Collect(maps.Values(m.pending))
	m.mu.Unlock()
	if len(last) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	err := m.client.CommitRecords(ctx, last...)
	if !moved(err) {
		m.mu.Lock()
		clear(m.pending) // nothing is given to this member or taken from it before the next poll
		m.mu.Unlock()
		return groupError("commit offsets of", m.s.group, err, "")
	}
	if len(records) == 0 {
		return nil // told before
	}
	_, err = fmt.Fprintf(c.err, "the group has changed before %s could be committed; they are committed later, or read again (%s)\n",
		counted(len(records), "record"), shortError{err})
	return err
}

// ended reports whether every partition that this member has was read to the end
// that it had when the command started, and committed.
func (m *membership) ended(ctx context.Context) (bool, error) {
	m.mu.Lock()
	mine, pending := maps.Clone(m.mine), len(m.pending)
	m.mu.Unlock()
	if !m.s.exitAtEnd || mine == nil {
		return false, nil
	}
	var fresh []int32
	for p := range mine {
		if !m.seen[p] {
			fresh = append(fresh, p)
		}
	}
	gone := func(p int32, _ bool) bool { return !mine[p] }
	maps.DeleteFunc(m.seen, gone)
	maps.DeleteFunc(m.next, func(p int32, _ int64) bool { return !mine[p] })
	maps.DeleteFunc(m.left, gone)
	if err := m.look(ctx, fresh); err != nil {
		return false, err
	}
	return len(m.left) == 0 && pending == 0, nil
}

// look notes which of the partitions have something to read.
func (m *membership) look(ctx context.Context, partitions []int32) error {
	if len(partitions) == 0 {
		return nil
	}
	commits, err := m.admin.FetchOffsets(ctx, m.s.group)
	if err != nil {
		return groupError("consume as a member of", m.s.group, one(err), "")
	}
	for _, p := range partitions {
		span := m.spans[p]
		from := span.from
		// What is committed and no longer there is as good as nothing: the client begins
		// where it does without.
		if o, ok := commits.Lookup(m.s.topic, p); ok && o.Err == nil && o.At >= span.start {
			from = o.At
		}
		from = max(from, m.next[p]) // what it has read is not read again while it has the partition
		m.seen[p] = true
		if from < span.end {
			m.left[p] = true
		}
	}
	return nil
}
