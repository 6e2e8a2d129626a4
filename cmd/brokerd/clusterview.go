package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// clusterView is a cluster as one moment shows it: its controllers, its brokers, and all
// its partitions.
type clusterView struct {
	Cluster     string           `json:"cluster"`
	Controllers []controllerView `json:"controllers"` // the one that leads first
	Brokers     []brokerView     `json:"brokers"`
	Partitions  partitionCounts  `json:"partitions"`
	// Problems say what is wrong, each in a sentence; none: all is well.
	Problems []string `json:"problems"`
	// Losses are elections of late after which acknowledged records may be missing. They are
	// no problem that goes away, and so none of Problems.
	Losses []*lossView `json:"losses"`

	partitions []partitionView
	quorumErr  error // why the controllers are not known
}

type controllerView struct {
	ID        int32  `json:"id"`
	Directory string `json:"directory_id"`
	Role      string `json:"role"`           // leader, voter, learner
	LogEnd    int64  `json:"log_end_offset"` // of the metadata
	Lag       int64  `json:"lag"`
	// SilentMillis is since when the leader has not heard of it; null: never heard.
	SilentMillis *int64 `json:"silent_ms"`

	directory [16]byte
}

type brokerView struct {
	ID       int32  `json:"id"`
	Address  string `json:"address"`
	Rack     string `json:"rack,omitempty"`
	Epoch    *int64 `json:"epoch"` // null: the cluster does not tell
	State    string `json:"state"` // serving, fenced, stopping
	Leaders  int    `json:"leaders"`
	Replicas int    `json:"replicas"`
	Behind   int    `json:"replicas_out_of_sync"`
}

type partitionCounts struct {
	Total           int `json:"total"`
	Leaderless      int `json:"without_leader"`
	BelowMinISR     int `json:"below_min_isr"`
	UnderReplicated int `json:"under_replicated"`
	Reassigning     int `json:"reassigning"`
	// BelowTarget are those with fewer replicas than they are to have, and Raised those of them
	// that are being given more.
	BelowTarget int `json:"below_target"`
	Raised      int `json:"raised"`
}

type partitionView struct {
	topic            string
	index            int32
	leader           int32
	replicas, isr    []int32
	adding, removing []int32
	minISR           int       // in effect: what writes with acks=all need
	missing          int       // replicas that it is to get
	loss             *lossView // nil: there was none
}

func (p *partitionView) String() string { return fmt.Sprintf("%s-%d", p.topic, p.index) }

// wanted are the replicas that the partition is to have.
func (p *partitionView) wanted() []int32 { return less(p.replicas, p.removing) }

// less is a without what is in b.
func less(a, b []int32) []int32 {
	var out []int32
	for _, x := range a {
		if !slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

const (
	stateServing  = "serving"
	stateFenced   = "fenced"
	stateStopping = "stopping"

	roleLeader  = "leader"
	roleVoter   = "voter"
	roleLearner = "learner"

	// voterSilence is how long a voter may not have been heard of before that is a problem.
	voterSilence = 10 * time.Second

	// The tags with which brokerd tells of a broker what Kafka's protocol has no field for.
	tagBrokerEpoch  = 10000
	tagShuttingDown = 10001
)

// kafkaError is an error of an answer, with its message if it has one.
func kafkaError(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil || message == nil || *message == "" {
		return err
	}
	return fmt.Errorf("%s (%w)", *message, shortError{err})
}

// lookAt asks everything.
func lookAt(ctx context.Context, client *kgo.Client) (*clusterView, error) {
	v := &clusterView{Controllers: []controllerView{}, Brokers: []brokerView{}, Problems: []string{}, Losses: []*lossView{}}
	if err := v.askBrokers(ctx, client); err != nil {
		return nil, fmt.Errorf("ask for the brokers: %w", err)
	}
	if err := v.askPartitions(ctx, client); err != nil {
		return nil, fmt.Errorf("ask for the partitions: %w", err)
	}
	if err := v.askQuorum(ctx, client); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		v.quorumErr = err
	}
	v.count()
	v.judge()
	v.findLosses(time.Now())
	locate(ctx, client, v.Losses)
	return v, nil
}

func (v *clusterView) askBrokers(ctx context.Context, client *kgo.Client) error {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kafkaError(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return err
	}
	v.Cluster = resp.ClusterID
	for _, b := range resp.Brokers {
		shown := brokerView{ID: b.NodeID, Address: fmt.Sprintf("%s:%d", b.Host, b.Port), State: stateServing}
		if b.Rack != nil {
			shown.Rack = *b.Rack
		}
		b.UnknownTags.Each(func(tag uint32, value []byte) {
			switch {
			case tag == tagBrokerEpoch && len(value) == 8:
				epoch := int64(binary.BigEndian.Uint64(value))
				shown.Epoch = &epoch
			case tag == tagShuttingDown:
				shown.State = stateStopping
			}
		})
		if b.IsFenced {
			shown.State = stateFenced
		}
		v.Brokers = append(v.Brokers, shown)
	}
	slices.SortFunc(v.Brokers, func(a, b brokerView) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

func (v *clusterView) partition(topic string, index int32) *partitionView {
	i, found := slices.BinarySearchFunc(v.partitions, index, func(p partitionView, index int32) int {
		return cmp.Or(cmp.Compare(p.topic, topic), cmp.Compare(p.index, index))
	})
	if !found {
		return nil
	}
	return &v.partitions[i]
}

func (v *clusterView) askQuorum(ctx context.Context, client *kgo.Client) error {
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kafkaError(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("the answer tells of no quorum")
	}
	p := resp.Topics[0].Partitions[0]
	if err := kafkaError(p.ErrorCode, p.ErrorMessage); err != nil {
		return err
	}
	var end, now int64 // as the leader has them
	for _, m := range p.CurrentVoters {
		if m.ReplicaID == p.LeaderID {
			end, now = m.LogEndOffset, m.LastFetchTimestamp
		}
	}
	add := func(m kmsg.DescribeQuorumResponseTopicPartitionReplicaState, role string) {
		c := controllerView{ID: m.ReplicaID, Directory: base64.RawURLEncoding.EncodeToString(m.ReplicaDirectoryID[:]), Role: role,
			LogEnd: m.LogEndOffset, Lag: max(0, end-m.LogEndOffset), directory: m.ReplicaDirectoryID}
		if m.LastFetchTimestamp >= 0 {
			silent := max(0, now-m.LastFetchTimestamp)
			c.SilentMillis = &silent
		}
		v.Controllers = append(v.Controllers, c)
	}
	for _, m := range p.CurrentVoters {
		if m.ReplicaID == p.LeaderID {
			add(m, roleLeader)
		} else {
			add(m, roleVoter)
		}
	}
	for _, m := range p.Observers {
		add(m, roleLearner)
	}
	order := []string{roleLeader, roleVoter, roleLearner}
	slices.SortStableFunc(v.Controllers, func(a, b controllerView) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Role), slices.Index(order, b.Role)), cmp.Compare(a.ID, b.ID))
	})
	return nil
}

func (v *clusterView) broker(id int32) *brokerView {
	for i := range v.Brokers {
		if v.Brokers[i].ID == id {
			return &v.Brokers[i]
		}
	}
	return nil
}

// count adds up what brokers have, and how partitions are.
func (v *clusterView) count() {
	v.Partitions.Total = len(v.partitions)
	for i := range v.partitions {
		p := &v.partitions[i]
		if b := v.broker(p.leader); b != nil {
			b.Leaders++
		}
		for _, r := range p.replicas {
			if b := v.broker(r); b != nil {
				b.Replicas++
				if !slices.Contains(p.isr, r) {
					b.Behind++
				}
			}
		}
		if p.leader < 0 {
			v.Partitions.Leaderless++
		}
		if len(p.isr) < p.minISR {
			v.Partitions.BelowMinISR++
		}
		if len(less(less(p.replicas, p.adding), p.isr)) > 0 {
			v.Partitions.UnderReplicated++
		}
		if len(p.adding)+len(p.removing) > 0 {
			v.Partitions.Reassigning++
		}
		if p.missing > 0 {
			v.Partitions.BelowTarget++
			if len(p.adding) > len(p.removing) { // else an operator has it moved
				v.Partitions.Raised++
			}
		}
	}
}

// judge says what is wrong.
func (v *clusterView) judge() {
	wrong := func(format string, args ...any) { v.Problems = append(v.Problems, fmt.Sprintf(format, args...)) }
	if v.quorumErr != nil {
		wrong("no active controller answers: leaders and in-sync replicas do not change, and what is shown of them may be old, until more than half of the voters are up and reach each other (%v)", rootCause(v.quorumErr))
	}
	for _, c := range v.Controllers {
		switch {
		case c.Role == roleLeader:
		case c.SilentMillis == nil:
			wrong("%s %d was not heard of since broker %d leads the quorum", c.Role, c.ID, v.Controllers[0].ID)
		case *c.SilentMillis > voterSilence.Milliseconds():
			wrong("%s %d was last heard of %s ago", c.Role, c.ID, (time.Duration(*c.SilentMillis) * time.Millisecond).Round(time.Second))
		}
	}
	for _, b := range v.Brokers {
		switch b.State {
		case stateFenced:
			wrong("broker %d is fenced: it is stopped, starting, or not reached by the controller", b.ID)
		case stateStopping:
			wrong("broker %d is stopping", b.ID)
		}
	}
	counts := v.Partitions
	for _, c := range []struct {
		n    int
		what string
		is   func(*partitionView) bool
	}{
		{counts.Leaderless, "have no leader: they cannot be read or written", func(p *partitionView) bool { return p.leader < 0 }},
		{counts.BelowMinISR, "have fewer replicas in sync than writes with acks=all need: these are refused", func(p *partitionView) bool { return len(p.isr) < p.minISR }},
		{counts.UnderReplicated, "have replicas that are not in sync", func(p *partitionView) bool { return len(less(less(p.replicas, p.adding), p.isr)) > 0 }},
	} {
		if c.n > 0 {
			first := slices.IndexFunc(v.partitions, func(p partitionView) bool { return c.is(&p) })
			wrong("%d of %d partitions %s (%s%s)", c.n, counts.Total, c.what, &v.partitions[first], map[bool]string{true: ", ..."}[c.n > 1])
		}
	}
}
