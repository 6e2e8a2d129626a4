package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/brokerd/brokerd/core/coordinator"
	"github.com/brokerd/brokerd/core/doctor"
	"github.com/brokerd/brokerd/core/model"
)

const (
	// questionTimeout bounds each question, and reachedTimeout how long a broker is dialled.
	questionTimeout = 10 * time.Second
	reachedTimeout  = 3 * time.Second
	// voterHeard is within what a voter was heard of that counts: they fetch, or are sent
	// heartbeats, several times a second.
	voterHeard = 3 * time.Second
	// dialsMax bounds how many brokers are dialled at once.
	dialsMax = 64
	// configsMax bounds the topics of one question about settings.
	configsMax = 500

	settingMinISR  = "min.insync.replicas"
	settingUnclean = "unclean.leader.election.enable"
)

// unasked is something that could not be asked.
type unasked struct {
	What string `json:"what"`
	Why  string `json:"why"`
	// Missing says that the cluster has no such answer, whoever asks; else it might have one.
	Missing bool `json:"missing"`
}

// examined is what was asked of a cluster.
type examined struct {
	client  *kgo.Client
	at      *cluster
	apis    map[int16]bool // that the cluster has
	view    *clusterView
	seen    *doctor.Cluster
	topics  map[string]int // where each is in seen
	unasked []unasked
}

// examine asks all that there is to know for a judgement, by Kafka's protocol alone. It fails
// where the brokers or the partitions could not be asked for; what else could not, it tells.
func examine(ctx context.Context, client *kgo.Client, at *cluster) (*examined, error) {
	e := &examined{client: client, at: at, view: &clusterView{}, seen: &doctor.Cluster{Bootstrap: at.bootstrap}, topics: map[string]int{}}
	for _, ask := range []struct {
		what string
		of   func(context.Context) error
	}{
		{"what it can be asked", e.askVersions}, {"the brokers", e.askBrokers}, {"the partitions", e.askPartitions},
	} {
		if err := within(ctx, ask.of); err != nil {
			return nil, fmt.Errorf("ask for %s: %w", ask.what, err)
		}
	}
	e.ask(ctx, "reassignments", kmsg.ListPartitionReassignments, func(ctx context.Context) error { return e.view.askMoves(ctx, client) })
	e.ask(ctx, "settings of topics", kmsg.DescribeConfigs, e.askSettings)
	e.ask(ctx, "the quorum of controllers", kmsg.DescribeQuorum, e.askQuorum)
	e.ask(ctx, "groups", kmsg.ListGroups, e.askGroups)
	e.dial(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e.tell()
	return e, nil
}

func within(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	return ask(ctx)
}

// ask asks what can be done without.
func (e *examined) ask(ctx context.Context, what string, key kmsg.Key, of func(context.Context) error) {
	if !e.apis[int16(key)] {
		e.unasked = append(e.unasked, unasked{what, "the cluster has no " + key.Name(), true})
		return
	}
	if err := within(ctx, of); err != nil {
		e.unasked = append(e.unasked, unasked{What: what, Why: rootCause(one(err)).Error()})
	}
}

func (e *examined) askVersions(ctx context.Context) error {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, e.client)
	if err == nil {
		err = kafkaError(resp.ErrorCode, nil)
	}
	if err != nil {
		return err
	}
	e.apis = make(map[int16]bool)
	for _, k := range resp.ApiKeys {
		e.apis[k.ApiKey] = true
	}
	return nil
}

func (e *examined) askBrokers(ctx context.Context) error {
	if e.apis[int16(kmsg.DescribeCluster)] {
		return e.view.askBrokers(ctx, e.client)
	}
	m, err := kadm.NewClient(e.client).BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	e.view.Cluster = m.Cluster
	for _, b := range m.Brokers {
		shown := brokerView{ID: b.NodeID, Address: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), State: stateServing}
		if b.Rack != nil {
			shown.Rack = *b.Rack
		}
		e.view.Brokers = append(e.view.Brokers, shown)
	}
	return nil
}

func (e *examined) askPartitions(ctx context.Context) error {
	var topics []kmsg.DescribeTopicPartitionsResponseTopic
	var err error
	if e.apis[int16(kmsg.DescribeTopicPartitions)] {
		topics, err = askTopics(ctx, e.client)
	} else {
		e.unasked = append(e.unasked, unasked{"eligible leader replicas", "the cluster has no " + kmsg.DescribeTopicPartitions.Name(), true})
		topics, err = e.askMetadata(ctx)
	}
	if err != nil {
		return err
	}
	var refused error
	told := true // what brokerd alone tells
	for _, t := range topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		if err != nil && refused == nil {
			refused = err
		}
		if t.Topic == nil || err != nil {
			continue
		}
		told = e.take(&t) && told
	}
	e.view.sortPartitions()
	if refused != nil {
		e.unasked = append(e.unasked, unasked{What: "some topics", Why: refused.Error()})
	}
	if !told {
		e.unasked = append(e.unasked, unasked{"how many replicas topics are to have", "only brokerd tells", true})
	}
	return nil
}

// take keeps a topic, and reports whether brokerd told how many replicas it is to have.
func (e *examined) take(t *kmsg.DescribeTopicPartitionsResponseTopic) bool {
	topic := doctor.Topic{Name: *t.Topic, Internal: t.IsInternal || *t.Topic == "__share_group_state"}
	t.UnknownTags.Each(func(tag uint32, b []byte) {
		if tag == tagTarget && len(b) == 4 {
			topic.Target = int(int32(binary.BigEndian.Uint32(b)))
		}
	})
	for i := range t.Partitions {
		p := &t.Partitions[i]
		v := partitionOf(topic.Name, p)
		seen := doctor.Partition{Index: p.Partition, Leader: p.LeaderID, Replicas: p.Replicas, ISR: p.ISR, ELR: p.EligibleLeaderReplicas}
		p.UnknownTags.Each(func(tag uint32, _ []byte) {
			if tag == tagMinISR {
				seen.MinISR = v.minISR
			}
		})
		topic.Partitions = append(topic.Partitions, seen)
		e.view.partitions = append(e.view.partitions, v)
	}
	e.topics[topic.Name] = len(e.seen.Topics)
	e.seen.Topics = append(e.seen.Topics, topic)
	return topic.Target > 0
}

// askMetadata asks for partitions as every cluster tells of them.
func (e *examined) askMetadata(ctx context.Context) ([]kmsg.DescribeTopicPartitionsResponseTopic, error) {
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, e.client)
	if err != nil {
		return nil, err
	}
	var out []kmsg.DescribeTopicPartitionsResponseTopic
	for _, t := range resp.Topics {
		topic := kmsg.NewDescribeTopicPartitionsResponseTopic()
		topic.Topic, topic.IsInternal, topic.ErrorCode = t.Topic, t.IsInternal, t.ErrorCode
		for _, p := range t.Partitions {
			part := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
			part.Partition, part.LeaderID, part.Replicas, part.ISR = p.Partition, p.Leader, p.Replicas, p.ISR
			topic.Partitions = append(topic.Partitions, part)
		}
		out = append(out, topic)
	}
	return out, nil
}

// askSettings asks for those settings of topics that decide what a death does.
func (e *examined) askSettings(ctx context.Context) error {
	var first error
	for from := 0; from < len(e.seen.Topics); from += configsMax {
		req := kmsg.NewPtrDescribeConfigsRequest()
		for i := range e.seen.Topics[from:min(from+configsMax, len(e.seen.Topics))] {
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, e.seen.Topics[from+i].Name
			r.ConfigNames = []string{settingMinISR, settingUnclean}
			req.Resources = append(req.Resources, r)
		}
		resp, err := req.RequestWith(ctx, e.client)
		if err != nil {
			return err
		}
		for _, r := range resp.Resources {
			if err := kafkaError(r.ErrorCode, r.ErrorMessage); err != nil {
				first = cmp.Or(first, err)
				continue
			}
			if at, ok := e.topics[r.ResourceName]; ok {
				takeSettings(&e.seen.Topics[at], r.Configs)
			}
		}
	}
	return first
}

func takeSettings(t *doctor.Topic, settings []kmsg.DescribeConfigsResponseResourceConfig) {
	for _, c := range settings {
		switch {
		case c.Value == nil:
		case c.Name == settingMinISR:
			t.MinISR, _ = strconv.Atoi(*c.Value) // what is no number is not known
		case c.Name == settingUnclean:
			t.Unclean = map[string]doctor.Answer{"true": doctor.Yes, "false": doctor.No}[*c.Value]
		}
	}
}

// askQuorum asks for the controllers. That none answers is not a question unanswered, but
// what the doctor has to know.
func (e *examined) askQuorum(ctx context.Context) error {
	err := e.view.askQuorum(ctx, e.client)
	switch {
	case errors.Is(err, kerr.UnsupportedVersion), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, context.Canceled):
		return err
	case err != nil:
		e.seen.Quorum.Silent = rootCause(err).Error()
		return nil
	}
	q := &e.seen.Quorum
	q.Known = true
	told := false // since when somebody was not heard of: Kafka tells it since KIP-836
	for _, c := range e.view.Controllers {
		told = told || c.Role == roleLeader && c.SilentMillis != nil
	}
	for _, c := range e.view.Controllers {
		heard := c.SilentMillis != nil && *c.SilentMillis <= voterHeard.Milliseconds()
		switch c.Role {
		case roleLeader:
			q.Leader, heard = c.ID, true
			fallthrough
		case roleVoter:
			q.Voters = append(q.Voters, doctor.Voter{ID: c.ID, Current: heard || !told, Lag: c.Lag})
		}
	}
	return nil
}

// askGroups asks all brokers for the groups that they are the coordinators of.
func (e *examined) askGroups(ctx context.Context) error {
	at, ok := e.topics[model.OffsetsTopic]
	if !ok || len(e.seen.Topics[at].Partitions) == 0 {
		return nil // there are none yet
	}
	partitions := e.seen.Topics[at].Partitions
	if n := countLeaderless(partitions); n > 0 {
		e.unasked = append(e.unasked, unasked{What: "some groups", Why: fmt.Sprintf("without a leader that could tell: %d of %d partitions of %s", n, len(partitions), model.OffsetsTopic)})
	}
	groups, err := kadm.NewClient(e.client).ListGroups(ctx)
	for _, g := range groups.Sorted() {
		e.seen.Groups = append(e.seen.Groups, doctor.Group{Name: g.Group, Partition: coordinator.PartitionOf(g.Group, len(partitions))})
	}
	return err
}

func countLeaderless(partitions []doctor.Partition) int {
	n := 0
	for i := range partitions {
		if partitions[i].Leader < 0 {
			n++
		}
	}
	return n
}

// dial tries whether brokers that serve are where they tell clients to dial.
func (e *examined) dial(ctx context.Context) {
	remote := true
	for _, s := range e.at.seeds() {
		host, _, _ := net.SplitHostPort(s)
		remote = remote && !ownMachine(host)
	}
	e.seen.Brokers = make([]doctor.Broker, len(e.view.Brokers))
	var dials errgroup.Group
	dials.SetLimit(dialsMax)
	for i, shown := range e.view.Brokers {
		b := &e.seen.Brokers[i]
		b.ID, b.Rack = shown.ID, shown.Rack
		colon := strings.LastIndexByte(shown.Address, ':')
		b.Host = strings.Trim(shown.Address[:colon], "[]")
		if port, err := strconv.ParseInt(shown.Address[colon+1:], 10, 32); err == nil {
			b.Port = int32(port)
		}
		b.State = map[string]doctor.State{stateServing: doctor.Serving, stateFenced: doctor.Fenced, stateStopping: doctor.Stopping}[shown.State]
		b.Astray = remote && ownMachine(b.Host)
		if b.State != doctor.Serving {
			continue
		}
		dials.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, reachedTimeout)
			defer cancel()
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
			if err != nil {
				b.Reached, b.Unreached = doctor.No, dialText(err)
				return nil
			}
			b.Reached = doctor.Yes
			return conn.Close()
		})
	}
	_ = dials.Wait() // what a dial came to is in the broker
}

func dialText(err error) string {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Sprintf("no answer within %s", reachedTimeout)
	}
	return rootCause(err).Error()
}

// ownMachine says whether a host is the machine that dials it.
func ownMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tell completes what is judged by what was asked for last.
func (e *examined) tell() {
	for i := range e.seen.Topics {
		t := &e.seen.Topics[i]
		for j := range t.Partitions {
			seen := &t.Partitions[j]
			if p := e.view.partition(t.Name, seen.Index); p != nil {
				seen.Adding, seen.Removing = p.adding, p.removing
				seen.Target = targetOf(t.Target, p)
			}
		}
	}
}

// targetOf is how many replicas a partition is to have, of a topic with this target, by what it
// lacks: an operator may have chosen fewer. 0: the cluster does not tell. What was being added
// when it was told what the partition lacks may be there since.
func targetOf(topic int, p *partitionView) int {
	has := len(less(p.replicas, p.adding))
	switch {
	case topic <= 0:
		return 0
	case p.missing > 0:
		return min(topic, has+p.missing)
	}
	return has
}
