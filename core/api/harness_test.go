package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	listener = "PLAINTEXT"
	self     = model.NodeID(1)
)

// cluster is a fake of all that a Handler asks: an image changed by a simple
// controller, and logs in memory.
type cluster struct {
	img atomic.Pointer[image.Image]

	mu      sync.Mutex
	logs    map[model.Partition]*memLog
	changed chan struct{} // closed on every append
	nextPID int64
	deny    map[security.Action]bool
	asked   []security.Action

	// What fails next, where a test sets it.
	appendErr error
	fetchErr  map[model.Partition]error
	ctrlErr   error
	appends   []model.Append // every one, in order
	fetches   []model.Fetch
	file      *os.File // where there is one, fetches that may are answered with sections of it
	hold      bool     // appends are not answered until release
	unspent   bool     // appends are answered while their bytes are looked at
	held      []func()
	trims     []model.TrimQuery
	groups    *coordinator
	voters    []string // what was asked about voters
	observers []model.QuorumVoter
}

type memLog struct {
	batches [][]byte
	start   int64
	leo     int64
}

func newCluster(t testing.TB) *cluster {
	c := &cluster{logs: make(map[model.Partition]*memLog), changed: make(chan struct{}), deny: make(map[security.Action]bool), fetchErr: make(map[model.Partition]error), groups: newCoordinator()}
	img, err := image.FromRecords(1,
		&image.ClusterRecord{Cluster: image.Cluster{ID: "cluster-one", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}},
		brokerRecord(1, "a.example", "rack-a", false),
		brokerRecord(2, "b.example", "", false),
		brokerRecord(3, "c.example", "", true),
	)
	if err != nil {
		t.Fatal(err)
	}
	c.img.Store(img)
	return c
}

func brokerRecord(id model.NodeID, host, rack string, fenced bool) *image.BrokerRecord {
	return &image.BrokerRecord{ID: id, Epoch: 1, Rack: rack, Fenced: fenced, Directories: []model.DirectoryID{{byte(id)}},
		Listeners: map[string]image.Endpoint{listener: {Host: host, Port: 9092}, "ONLY-" + nodeName(id): {Host: host, Port: 9093}}}
}

func (c *cluster) apply(records ...image.Record) {
	old := c.img.Load()
	d := image.NewDelta(old, old.Offset+1)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			panic(err)
		}
	}
	c.img.Store(d.Image())
}

func topicID(name string) model.TopicID {
	var id model.TopicID
	copy(id[:], "id-"+name+"................")
	return id
}

// topic adds a topic whose partitions are led by these brokers.
func (c *cluster) topic(name string, leaders ...model.NodeID) model.TopicID {
	id := topicID(name)
	records := []image.Record{&image.TopicRecord{ID: id, Name: name, Internal: name == "__consumer_offsets", ReplicationFactorTarget: 3}}
	for i, leader := range leaders {
		replicas := []model.NodeID{1, 2, 3}
		records = append(records, &image.PartitionRecord{Partition: model.Partition{Topic: id, Index: int32(i)}, Registration: image.Partition{
			Replicas: replicas, Directories: []model.DirectoryID{{1}, {2}, {3}}, ISR: []model.NodeID{1, 2}, ELR: []model.NodeID{3},
			Leader: leader, LeaderEpoch: 7,
		}})
	}
	c.apply(records...)
	return id
}

func (c *cluster) Image() *image.Image { return c.img.Load() }

func (c *cluster) Authorize(_ context.Context, _ security.Principal, _ string, what security.Action) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, what)
	return !c.deny[what]
}

func (c *cluster) denyTopic(name string, ops ...security.Operation) {
	for _, op := range ops {
		c.deny[security.Action{Operation: op, Resource: security.Topic, Name: name}] = true
	}
}

func (c *cluster) denyCluster(ops ...security.Operation) {
	for _, op := range ops {
		c.deny[security.Action{Operation: op, Resource: security.Cluster, Name: security.ClusterName}] = true
	}
}

// The controller.

func (c *cluster) CreateTopics(ctx context.Context, topics []model.NewTopic, validateOnly bool) ([]model.TopicResult, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]model.TopicResult, len(topics))
	for i, t := range topics {
		out[i] = model.TopicResult{Name: t.Name, ID: topicID(t.Name), Partitions: max(1, t.Partitions), ReplicationFactor: 3}
		own := make(map[string]string)
		for k, v := range t.Configs {
			if v == nil {
				out[i].Err = model.ErrInvalidConfig
				continue
			}
			own[k] = *v
		}
		if _, ok := c.Image().TopicByName(t.Name); ok {
			out[i].Err = model.ErrTopicExists
		} else if _, err := topicconfig.Resolve(nil, own); err != nil {
			out[i].Err = errorOf(model.ErrInvalidConfig, err)
		}
		if out[i].Err != nil || validateOnly {
			continue
		}
		leaders := make([]model.NodeID, out[i].Partitions)
		for j := range leaders {
			leaders[j] = self
		}
		c.topic(t.Name, leaders...)
		for k, v := range own {
			c.apply(&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: t.Name}, Key: k, Value: v})
		}
	}
	return out, nil
}

func (c *cluster) DeleteTopics(_ context.Context, topics []model.TopicRef) ([]model.TopicResult, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]model.TopicResult, len(topics))
	for i, ref := range topics {
		t, ok := c.Image().Topic(ref.ID)
		if ref.Name != "" {
			t, ok = c.Image().TopicByName(ref.Name)
		}
		if !ok {
			out[i].Err = model.ErrUnknownTopicOrPartition
			continue
		}
		c.apply(&image.TopicRemovalRecord{ID: t.ID, Name: t.Name})
	}
	return out, nil
}

func (c *cluster) CreatePartitions(_ context.Context, more []model.MorePartitions, validateOnly bool) ([]error, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]error, len(more))
	for i, m := range more {
		t, _ := c.Image().TopicByName(m.Topic)
		if int(m.Count) <= len(t.Partitions) {
			out[i] = model.ErrInvalidPartitions
			continue
		}
		for j := len(t.Partitions); j < int(m.Count) && !validateOnly; j++ {
			c.apply(&image.PartitionRecord{Partition: model.Partition{Topic: t.ID, Index: int32(j)}, Registration: image.Partition{
				Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{{1}}, ISR: []model.NodeID{1}, Leader: 1, LeaderEpoch: 7}})
		}
	}
	return out, nil
}

func (c *cluster) AlterConfigs(_ context.Context, changes []model.ConfigChange, validateOnly bool) ([]error, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]error, len(changes))
	for i, ch := range changes {
		for _, op := range ch.Ops {
			if _, ok := topicconfig.Lookup(op.Key); !ok && ch.Resource.Type == model.ResourceTopic {
				out[i] = model.ErrInvalidConfig
			}
		}
		if out[i] != nil || validateOnly {
			continue
		}
		if ch.Replace {
			for k := range c.Image().Config(ch.Resource) {
				c.apply(&image.ConfigRecord{Resource: ch.Resource, Key: k, Unset: true})
			}
		}
		for _, op := range ch.Ops {
			r := &image.ConfigRecord{Resource: ch.Resource, Key: op.Key, Unset: op.Kind == model.ConfigDelete}
			if op.Value != nil {
				r.Value = *op.Value
			}
			c.apply(r)
		}
	}
	return out, nil
}

func (c *cluster) AllocateProducerIDs(ctx context.Context) (model.ProducerIDBlock, error) {
	if c.ctrlErr != nil {
		return model.ProducerIDBlock{}, c.ctrlErr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextPID += 3
	return model.ProducerIDBlock{First: c.nextPID - 3, Count: 3}, nil
}

// The partitions.

func (c *cluster) log(p model.Partition) (*memLog, error) {
	reg, _, ok := c.Image().Partition(p)
	if !ok || reg.Leader != self {
		return nil, model.ErrNotLeaderOrFollower
	}
	l := c.logs[p]
	if l == nil {
		l = &memLog{}
		c.logs[p] = l
	}
	return l, nil
}

func (c *cluster) Append(_ context.Context, a model.Append, done func(model.Appended)) {
	c.mu.Lock()
	c.appends = append(c.appends, a)
	out := model.Appended{BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Spent: !c.unspent}
	l, err := c.log(a.Partition)
	if err == nil {
		err = c.appendErr
	}
	if out.Err = err; err == nil {
		recordbatch.Stamp(a.Data, l.leo, 7)
		out = model.Appended{BaseOffset: l.leo, LogAppendTime: a.LogAppendTime, LogStart: l.start, LeaderEpoch: 7, Spent: !c.unspent}
		l.batches = append(l.batches, a.Data)
		l.leo += a.Batch.LastOffset - a.Batch.BaseOffset + 1
		close(c.changed)
		c.changed = make(chan struct{})
	}
	if c.hold {
		c.held = append(c.held, func() { done(out) })
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	done(out)
}

// release answers what was held, the last append first.
func (c *cluster) release() {
	c.mu.Lock()
	held := c.held
	c.held, c.hold = nil, false
	c.mu.Unlock()
	for _, f := range slices.Backward(held) {
		f()
	}
}

func (c *cluster) Fetch(ctx context.Context, f model.Fetch) *model.FetchAnswer {
	c.mu.Lock()
	c.fetches = append(c.fetches, f)
	c.mu.Unlock()
	deadline := time.NewTimer(f.MaxWait)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		out, size, failed := c.fetchOnce(f)
		changed := c.changed
		c.mu.Unlock()
		if size >= f.MinBytes || failed || f.MaxWait <= 0 {
			return &model.FetchAnswer{Partitions: out}
		}
		select {
		case <-changed:
		case <-deadline.C:
			return &model.FetchAnswer{Partitions: out}
		case <-ctx.Done():
			return &model.FetchAnswer{Partitions: out}
		}
	}
}

func (c *cluster) fetchOnce(f model.Fetch) (out []model.Fetched, size int, failed bool) {
	for _, p := range f.Partitions {
		got := model.Fetched{Partition: p.Partition, HighWatermark: -1, LastStable: -1, LogStart: -1}
		l, err := c.log(p.Partition)
		if err == nil {
			err = c.fetchErr[p.Partition]
		}
		switch {
		case err != nil:
			got.Err = err
		case p.CurrentEpoch != model.NoEpoch && p.CurrentEpoch < 7:
			got.Err = model.ErrFencedLeaderEpoch
		case p.LastFetchedEpoch > 7:
			got.Diverging = &model.EpochEnd{Epoch: 7, EndOffset: l.leo}
			got.HighWatermark, got.LastStable, got.LogStart = l.leo, l.leo, l.start
		case p.Offset < l.start || p.Offset > l.leo:
			got.Err = model.ErrOffsetOutOfRange
		default:
			got.HighWatermark, got.LastStable, got.LogStart, got.LeaderEpoch = l.leo, l.leo, l.start, 7
			if got.Elsewhere = p.Elsewhere; got.Elsewhere {
				failed = true // which is told at once, too
				break
			}
			for _, b := range l.batches {
				info, _ := recordbatch.Parse(b)
				if info.LastOffset >= p.Offset && size < f.MaxBytes {
					got.Data = append(got.Data, b)
					size += len(b)
				}
			}
		}
		if c.file != nil && f.Sections && len(got.Data) > 0 {
			got.Section, got.Data = c.section(got.Data), nil
		}
		failed = failed || got.Err != nil || got.Diverging != nil
		out = append(out, got)
	}
	return out, size, failed
}

// section writes batches to the file.
func (c *cluster) section(batches [][]byte) model.Section {
	pos, err := c.file.Seek(0, io.SeekEnd)
	if err != nil {
		panic(err)
	}
	n, err := c.file.Write(bytes.Join(batches, nil))
	if err != nil {
		panic(err)
	}
	return model.Section{File: c.file, Pos: pos, Bytes: n}
}

func (c *cluster) Offsets(_ context.Context, qs []model.OffsetQuery) []model.OffsetAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]model.OffsetAnswer, len(qs))
	for i, q := range qs {
		l, err := c.log(q.Partition)
		out[i] = model.OffsetAnswer{Offset: -1, Timestamp: -1, LeaderEpoch: 7, Err: err}
		if err != nil {
			continue
		}
		switch q.Timestamp {
		case model.TimestampLatest:
			out[i].Offset = l.leo
		case model.TimestampEarliest:
			out[i].Offset = l.start
		case 404:
			out[i].Err = model.ErrOffsetNotAvailable
		default:
			out[i].Offset, out[i].Timestamp = l.leo-1, q.Timestamp
		}
	}
	return out
}

func (c *cluster) EpochEnds(_ context.Context, qs []model.EpochQuery) []model.EpochAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]model.EpochAnswer, len(qs))
	for i, q := range qs {
		l, err := c.log(q.Partition)
		switch {
		case err != nil:
			out[i].Err = err
		case q.CurrentEpoch != model.NoEpoch && q.CurrentEpoch < 7:
			out[i].Err = model.ErrFencedLeaderEpoch
		default:
			out[i].EpochEnd = model.EpochEnd{Epoch: min(q.Epoch, 7), EndOffset: l.leo}
		}
	}
	return out
}

func (c *cluster) Trim(_ context.Context, qs []model.TrimQuery) []model.TrimAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trims = append(c.trims, qs...)
	out := make([]model.TrimAnswer, len(qs))
	for i, q := range qs {
		l, err := c.log(q.Partition)
		switch {
		case err != nil:
			out[i].Err = err
		case q.Offset > l.leo:
			out[i].Err = model.ErrOffsetOutOfRange
		case q.Offset == -1:
			l.start = l.leo
		default:
			l.start = q.Offset
		}
		if out[i].Err == nil {
			out[i].LowWatermark = l.start
		}
	}
	return out
}

func (c *cluster) Producers(_ context.Context, ps []model.Partition) []model.ProducersAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]model.ProducersAnswer, len(ps))
	for i, p := range ps {
		if _, err := c.log(p); err != nil {
			out[i].Err = err
			continue
		}
		for _, a := range c.appends {
			if a.Partition == p && a.Batch.ProducerID >= 0 {
				out[i].Producers = append(out[i].Producers, model.ProducerState{
					ID: a.Batch.ProducerID, Epoch: a.Batch.ProducerEpoch, LastSequence: a.Batch.BaseSequence, LastTimestamp: a.Batch.MaxTimestamp})
			}
		}
	}
	return out
}

func (c *cluster) Directories(context.Context) []model.Directory {
	return []model.Directory{{
		Name: "default", Plugin: "mem", TotalBytes: 1000, FreeBytes: 400,
		Replicas: []model.ReplicaStatus{
			{Partition: model.Partition{Topic: topicID("orders"), Index: 1}, Bytes: 20, HighWatermark: 9, LEO: 7},
			{Partition: model.Partition{Topic: topicID("orders"), Index: 0}, Bytes: 10, Leader: true},
			{Partition: model.Partition{Topic: topicID("forgotten")}, Bytes: 5},
		},
	}, {Name: "broken", Err: io.ErrUnexpectedEOF}}
}

// events counts what it is told.
type events struct {
	mu       sync.Mutex
	answered int
	produced int
	fetched  int
	sessions int
	evicted  int
	software string
}

func (e *events) Answered(int16, int16, time.Duration) { e.add(func() { e.answered++ }) }
func (e *events) Produced(_ string, records, _ int)    { e.add(func() { e.produced += records }) }
func (e *events) Fetched(_ string, bytes int)          { e.add(func() { e.fetched += bytes }) }
func (e *events) FetchSessions(open int, evicted bool) {
	e.add(func() {
		e.sessions = open
		if evicted {
			e.evicted++
		}
	})
}
func (e *events) ClientSeen(software, version string) {
	e.add(func() { e.software = software + "/" + version })
}

func (e *events) add(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

type errorPair struct{ kind, cause error }

func errorOf(kind, cause error) error   { return errorPair{kind, cause} }
func (e errorPair) Error() string       { return e.cause.Error() }
func (e errorPair) Is(other error) bool { return other == e.kind }

// testTime is when everything happens, in tests that do not say otherwise.
func testTime() time.Time { return time.UnixMilli(1_700_000_000_000) }

func newHandler(c *cluster, change ...func(*Config, *Deps)) *Handler {
	cfg := Config{NodeID: self, AutoCreateTopics: true}
	deps := Deps{Partitions: c, Controller: c, Groups: c.groups, Metadata: c, Operations: c, Quorum: c, Authorizer: c, Events: &events{}, Logger: slog.New(slog.DiscardHandler), Now: testTime}
	for _, f := range change {
		f(&cfg, &deps)
	}
	return New(cfg, deps)
}

func callOf(req kmsg.Request) wire.Call {
	return wire.Call{
		Header: wire.Header{Key: req.Key(), Version: req.GetVersion(), ClientID: "test"},
		Body:   req.AppendTo(nil),
		From:   wire.Peer{Listener: listener, Host: "192.0.2.1", Principal: security.Anonymous},
	}
}

// ask sends a request through its real encoding, and reads the answer through
// its real encoding.
func ask[R kmsg.Response](t testing.TB, h *Handler, version int16, req kmsg.Request) R {
	t.Helper()
	req.SetVersion(version)
	return decoded[R](t, req, begin(t.Context(), h, callOf(req))(t.Context()))
}

// turn is a wire.Turn.
type turn struct {
	later bool
	ready chan struct{}
}

func (t *turn) Later() { t.later = true }
func (t *turn) Ready() { close(t.ready) }

// begin begins a request as the server does: its Answer is asked when it is there.
func begin(ctx context.Context, h wire.Handler, call wire.Call) wire.Answer {
	turn := &turn{ready: make(chan struct{})}
	call.Turn = turn
	answer := h.Begin(ctx, call)
	return func(ctx context.Context) wire.Reply {
		if turn.later {
			select {
			case <-turn.ready:
			case <-ctx.Done():
			}
		}
		return answer(ctx)
	}
}

// encoded is the response's body, which is released; nil where there is none.
func encoded(version int16, reply wire.Reply) []byte {
	if reply.Version != nil {
		version = *reply.Version
	}
	switch {
	case reply.Body != nil:
		defer reply.Body.Release()
		var parts spliced
		out := reply.Body.Encode(nil, &parts)
		body, from := []byte{}, 0
		for i, at := range parts.places {
			body = append(append(body, out[from:at]...), parts.records[i]...)
			from = at
		}
		return append(body, out[from:]...)
	case reply.Response != nil:
		reply.Response.SetVersion(version)
		return reply.Response.AppendTo([]byte{})
	}
	return nil
}

// spliced is what belongs between the bytes of a response.
type spliced struct {
	places  []int
	records [][]byte
}

func (s *spliced) Records(at int, records []byte) {
	s.places, s.records = append(s.places, at), append(s.records, records)
}

func (s *spliced) Section(at int, section *model.Section) {
	b := make([]byte, section.Bytes)
	if _, err := section.File.ReadAt(b, section.Pos); err != nil {
		panic(err)
	}
	s.Records(at, b)
}

func decoded[R kmsg.Response](t testing.TB, req kmsg.Request, reply wire.Reply) R {
	t.Helper()
	body := encoded(req.GetVersion(), reply)
	if reply.Close || body == nil {
		t.Fatalf("%s version %d: no response: %+v", kmsg.NameForKey(req.Key()), req.GetVersion(), reply)
	}
	version := req.GetVersion()
	if reply.Version != nil {
		version = *reply.Version
	}
	return read(t, req.Key(), version, body).(R)
}

func records(t testing.TB, opts batch.Options, values ...string) []byte {
	t.Helper()
	var rs []batch.Record
	for _, v := range values {
		rs = append(rs, batch.Record{Timestamp: testTime().UnixMilli(), Key: []byte("k"), Value: []byte(v)})
	}
	b, err := batch.Build(opts, rs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serve runs a listener until the test ends, and returns its address. It frames
// as core/server does, with none of its care.
func serve(t *testing.T, h wire.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				defer conn.Close()
				serveConn(ctx, conn, h)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

func serveConn(ctx context.Context, conn net.Conn, h wire.Handler) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		call, ok := parseFrame(frame)
		if !ok {
			return
		}
		reply := begin(ctx, h, call)(ctx)
		if body := encoded(call.Version, reply); body != nil {
			if _, err := conn.Write(encodeFrame(call, body)); err != nil {
				return
			}
		}
		if reply.Close {
			return
		}
	}
}

func parseFrame(frame []byte) (wire.Call, bool) {
	if len(frame) < 10 {
		return wire.Call{}, false
	}
	c := wire.Call{From: wire.Peer{Listener: listener, Host: "127.0.0.1", Principal: security.Anonymous}}
	c.Key, c.Version = int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	c.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	rest := frame[10:]
	if n := int(int16(binary.BigEndian.Uint16(frame[8:]))); n > 0 {
		c.ClientID, rest = string(rest[:n]), rest[n:]
	}
	if req := kmsg.RequestForKey(c.Key); req != nil {
		req.SetVersion(c.Version)
		if req.IsFlexible() {
			rest = rest[1:] // no tags in the header
		}
	}
	c.Body = rest
	return c, true
}

func encodeFrame(c wire.Call, body []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0}, uint32(c.CorrelationID))
	req := kmsg.RequestForKey(c.Key)
	if req.SetVersion(c.Version); req.IsFlexible() && c.Key != wire.KeyAPIVersions {
		out = append(out, 0)
	}
	out = append(out, body...)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

func ptr[T any](v T) *T { return &v }
