package group

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestStories plays the stories in testdata/stories. Each line is an input; below it
// stand the effects that it has, in words.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var s story
		datadriven.RunTest(t, path, s.play)
	})
}

// story is a machine, the time in it, and the log of its partition.
type story struct {
	m     *Machine
	now   time.Time
	timer time.Time
	out   Effects
	asked map[WriteID][]Record // and not answered
	log   []Record
	ids   int
	text  strings.Builder
}

var storyBegins = time.UnixMilli(1_700_000_000_000)

var errorsByName = map[string]error{
	"": nil, "timeout": model.ErrRequestTimedOut, "replicas": model.ErrNotEnoughReplicas, "leader": model.ErrNotLeaderOrFollower,
	"storage": model.ErrStorage, "large": model.ErrMessageTooLarge, "unknown": errors.New("something else"),
}

func (s *story) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.text.Reset()
	switch d.Cmd {
	case "new":
		s.begin(t, d)
		return "ok\n"
	case "pass":
		s.pass(duration(t, d, "by", 0))
	case "away":
		s.now = s.now.Add(duration(t, d, "for", 0)) // nobody is here to see it
	case "reload":
		s.reload()
	case "log":
		for _, r := range s.log {
			fmt.Fprintf(&s.text, "%s\n", describeRecord(r))
		}
	case "lose-log":
		s.log = nil
	case "forge":
		s.forge(t, d)
	case "alarms":
		fmt.Fprintf(&s.text, "%d alarms, %d groups, %d writes under way\n", len(s.m.alarms), len(s.m.groups), len(s.m.writes.queue))
	default:
		s.step(s.input(t, d))
	}
	if s.text.Len() == 0 {
		return "nothing\n"
	}
	return s.text.String()
}

func (s *story) begin(t *testing.T, d *datadriven.TestData) {
	settings := DefaultSettings()
	settings.SizeMax = number(t, d, "size-max", settings.SizeMax)
	settings.InitialDelay = duration(t, d, "initial-delay", settings.InitialDelay)
	settings.Retention = duration(t, d, "retention", settings.Retention)
	settings.ExpiryEvery = duration(t, d, "expiry-every", settings.ExpiryEvery)
	*s = story{now: storyBegins, asked: map[WriteID][]Record{}}
	s.m = New(settings, func() string { s.ids++; return strconv.Itoa(s.ids) }, Memory{})
	if !d.HasArg("idle") {
		s.step(&Lead{Epoch: 1})
		s.step(&Loaded{Gen: s.m.gen})
	}
}

// reload is what a broker does that leads anew: what was not answered is lost.
func (s *story) reload() {
	s.asked = map[WriteID][]Record{}
	s.step(&Lead{Epoch: s.m.epoch + 1})
	s.step(&Replay{Gen: s.m.gen, Records: s.log})
	s.step(&Loaded{Gen: s.m.gen})
}

// input makes an input from a command.
func (s *story) input(t *testing.T, d *datadriven.TestData) Input {
	id, group, member := RequestID(number(t, d, "id", 0)), word(t, d, "group", "g"), word(t, d, "member", "")
	instance, generation := word(t, d, "instance", ""), int32(number(t, d, "gen", -1))
	switch d.Cmd {
	case "lead":
		return &Lead{Epoch: int32(number(t, d, "epoch", 1))}
	case "resign":
		return &Resign{}
	case "settings":
		settings := s.m.settings
		settings.SizeMax = number(t, d, "size-max", settings.SizeMax)
		settings.ExpiryEvery = duration(t, d, "expiry-every", settings.ExpiryEvery)
		return &Configure{Settings: settings}
	case "replay":
		return &Replay{Gen: Generation(number(t, d, "load", int(s.m.gen))), Records: s.log}
	case "loaded":
		return &Loaded{Gen: Generation(number(t, d, "load", int(s.m.gen))), Err: errorsByName[word(t, d, "err", "")]}
	case "written":
		w := &Written{Gen: Generation(number(t, d, "load", int(s.m.gen))), ID: WriteID(id), Err: errorsByName[word(t, d, "err", "")]}
		if w.Err == nil {
			s.log = append(s.log, s.asked[w.ID]...)
		}
		delete(s.asked, w.ID)
		return w
	case "topics-deleted":
		return &TopicsDeleted{Topics: words(d, "topics")}
	case "join":
		return &Join{ID: id, JoinGroup: model.JoinGroup{Group: group, MemberID: member, InstanceID: instance, ClientID: word(t, d, "client", "c"),
			ClientHost: "/host", ProtocolType: word(t, d, "type", "consumer"), Protocols: protocols(d),
			SessionTimeout: duration(t, d, "session", 10*time.Second), RebalanceTimeout: duration(t, d, "rebalance", time.Minute),
			AsksForID: d.HasArg("asks"), SkipsAssignment: d.HasArg("skips"), Reason: word(t, d, "reason", "why")}}
	case "sync":
		q := model.SyncGroup{Group: group, Generation: generation, MemberID: member, InstanceID: instance,
			ProtocolType: word(t, d, "type", ""), Protocol: word(t, d, "protocol", "")}
		for _, a := range words(d, "assign") {
			to, what, _ := strings.Cut(a, ":")
			q.Assignments = append(q.Assignments, model.MemberAssignment{MemberID: to, Assignment: []byte(what)})
		}
		return &Sync{ID: id, SyncGroup: q}
	case "heartbeat":
		return &Heartbeat{ID: id, GroupHeartbeat: model.GroupHeartbeat{Group: group, Generation: generation, MemberID: member, InstanceID: instance}}
	case "leave":
		q := model.LeaveGroup{Group: group}
		for _, who := range words(d, "members") {
			id, instance, _ := strings.Cut(who, "@")
			q.Members = append(q.Members, model.LeavingMember{MemberID: id, InstanceID: instance, Reason: "why"})
		}
		return &Leave{ID: id, LeaveGroup: q}
	}
	return s.offsetInput(t, d, id, group)
}

func (s *story) offsetInput(t *testing.T, d *datadriven.TestData, id RequestID, group string) Input {
	switch d.Cmd {
	case "commit":
		q := model.CommitOffsets{Group: group, Generation: int32(number(t, d, "gen", -1)), MemberID: word(t, d, "member", ""),
			InstanceID: word(t, d, "instance", ""), Retention: duration(t, d, "retention", -1)}
		for _, o := range words(d, "offsets") {
			at, offset, _ := strings.Cut(o, ":")
			key, n := partition(t, d, at), 0
			fmt.Sscan(offset, &n)
			q.Offsets = append(q.Offsets, model.GroupOffset{TopicPartition: key, Offset: int64(n), LeaderEpoch: 4,
				Metadata: strings.Repeat("m", number(t, d, "metadata", 1))})
		}
		return &Commit{ID: id, CommitOffsets: q}
	case "fetch":
		q := model.FetchOffsets{Group: group, Epoch: -1, All: d.HasArg("all")}
		for _, p := range words(d, "partitions") {
			q.Partitions = append(q.Partitions, partition(t, d, p))
		}
		return &FetchOffsets{ID: id, FetchOffsets: q}
	case "delete-offsets":
		q := model.DeleteOffsets{Group: group}
		for _, p := range words(d, "partitions") {
			q.Partitions = append(q.Partitions, partition(t, d, p))
		}
		return &DeleteOffsets{ID: id, DeleteOffsets: q}
	case "describe":
		return &Describe{ID: id, Group: group}
	case "delete":
		return &Delete{ID: id, Group: group}
	case "list":
		return &List{ID: id}
	}
	d.Fatalf(t, "no command %q", d.Cmd)
	return nil
}

// pass lets time pass and fires the timer when it is due.
func (s *story) pass(by time.Duration) {
	end := s.now.Add(by)
	for !s.timer.IsZero() && !s.timer.After(end) {
		if s.timer.After(s.now) {
			s.now = s.timer
		}
		s.timer = time.Time{}
		before := s.text.Len()
		s.step(&Fired{})
		if s.text.Len() > before {
			text := s.text.String()
			s.text.Reset()
			fmt.Fprintf(&s.text, "%safter %s:\n%s", text[:before], s.now.Sub(storyBegins), text[before:])
		}
	}
	s.now = end
}

func (s *story) step(in Input) {
	s.m.Step(s.now, in, &s.out)
	e, w := &s.out, &s.text
	if e.Load != nil {
		fmt.Fprintf(w, "load %d\n", e.Load.Gen)
	}
	for _, n := range e.Notices {
		fmt.Fprintf(w, "notice %s: %s%s gen=%d n=%d %s", n.Kind, n.Group, n.Member, n.Generation, n.Count, n.Text)
		if n.Err != nil {
			fmt.Fprintf(w, ": %v", n.Err)
		}
		fmt.Fprintln(w)
	}
	for _, a := range e.Writes {
		s.asked[a.ID] = a.Records
		fmt.Fprintf(w, "write id=%d epoch=%d\n", a.ID, a.Epoch)
		for _, r := range a.Records {
			fmt.Fprintf(w, "  %s\n", describeRecord(r))
		}
	}
	slices.SortStableFunc(e.Responses, func(a, b Response) int { return cmp.Compare(a.ID, b.ID) })
	for _, r := range e.Responses {
		fmt.Fprintf(w, "answer id=%d: %s\n", r.ID, describeAnswer(r.Answer))
	}
	if e.Timer != nil {
		s.timer = *e.Timer
	}
	e.Reset()
}

// forge puts records into the log that this version would not write.
func (s *story) forge(t *testing.T, d *datadriven.TestData) {
	at := s.now.UnixMilli()
	switch word(t, d, "kind", "") {
	case "future-key":
		s.log = append(s.log, Record{Key: []byte{0, 9, 1, 2}, Value: []byte{0, 0}, Timestamp: at})
	case "future-offset":
		s.log = append(s.log, Record{Key: offsetKey("g", model.TopicPartition{Topic: "t"}), Value: []byte{0, 9, 1}, Timestamp: at})
	case "cut-group":
		s.log = append(s.log, Record{Key: groupKey("g"), Value: []byte{0, 3, 0, 8, 'c'}, Timestamp: at})
	case "old-offset":
		v := kmsg.OffsetCommitValue{Version: int16(number(t, d, "version", 0)), Offset: 7, CommitTimestamp: at, ExpireTimestamp: at + 60_000, Metadata: "old"}
		k := kmsg.OffsetCommitKey{Version: 0, Group: "g", Topic: "old", Partition: int32(v.Version)}
		s.log = append(s.log, Record{Key: k.AppendTo(nil), Value: v.AppendTo(nil), Timestamp: at})
	case "old-group":
		v := kmsg.GroupMetadataValue{Version: 0, ProtocolType: "consumer", Generation: 5, Protocol: kmsg.StringPtr("range"), Leader: kmsg.StringPtr("old-1"),
			Members: []kmsg.GroupMetadataValueMember{{MemberID: "old-1", SessionTimeoutMillis: 10_000, Subscription: consumerMetadata("t"), Assignment: []byte("A")}}}
		s.log = append(s.log, Record{Key: groupKey("g"), Value: v.AppendTo(nil), Timestamp: at})
	default:
		d.Fatalf(t, "no such forgery")
	}
}

// describeRecord reads a record as Kafka's formatter would.
func describeRecord(r Record) string {
	if binary.BigEndian.Uint16(r.Key) == keyGroup {
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(r.Key); err != nil {
			return err.Error()
		}
		if r.Value == nil {
			return fmt.Sprintf("group %s removed", k.Group)
		}
		g, err := decodeGroup(k.Group, r.Value)
		if err != nil {
			return err.Error()
		}
		text := fmt.Sprintf("group %s v%d gen=%d type=%s protocol=%q leader=%q", g.id, r.Value[1], g.generation, g.protocolType, g.protocol, g.leader)
		for _, m := range g.members {
			text += fmt.Sprintf(" %s", m.id)
			if m.instance != "" {
				text += "@" + m.instance
			}
			text += fmt.Sprintf("=%q", m.assignment)
		}
		return text
	}
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(r.Key); err != nil {
		return err.Error()
	}
	if r.Value == nil {
		return fmt.Sprintf("offset %s %s-%d removed", k.Group, k.Topic, k.Partition)
	}
	c, err := decodeOffset(r.Value)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("offset %s %s-%d=%d v%d", k.Group, k.Topic, k.Partition, c.offset, r.Value[1])
	if c.expires >= 0 {
		text += fmt.Sprintf(" expires after %dms", c.expires-c.at)
	}
	return text
}

func describeAnswer(a Answer) string {
	switch a := a.(type) {
	case Joined:
		if a.Err != nil {
			return fmt.Sprintf("member=%q %v", a.MemberID, a.Err)
		}
		text := fmt.Sprintf("joined gen=%d member=%s leader=%s %s/%s", a.Generation, a.MemberID, a.Leader, a.ProtocolType, a.Protocol)
		if a.SkipAssignment {
			text += " skip"
		}
		for _, m := range a.Members {
			text += fmt.Sprintf(" [%s %q]", strings.TrimSuffix(m.MemberID+"@"+m.InstanceID, "@"), topicsOf(m.Metadata))
		}
		return text
	case Synced:
		if a.Err != nil {
			return a.Err.Error()
		}
		return fmt.Sprintf("synced %s/%s %q", a.ProtocolType, a.Protocol, a.Assignment)
	case Left:
		return fmt.Sprint("left ", a.Members, " ", a.Err)
	case Committed:
		return fmt.Sprint("committed ", a.Offsets, " ", a.Err)
	case Deleted:
		return fmt.Sprint("deleted ", a.Partitions, " ", a.Err)
	case Fetched:
		text := fmt.Sprint("fetched ", a.Err)
		for _, o := range a.Offsets {
			text += fmt.Sprintf(" %s-%d=%d/%d", o.Topic, o.Partition, o.Offset, o.LeaderEpoch)
		}
		return text
	case Described:
		text := fmt.Sprintf("%s %s %s/%s %v", a.Group, a.State, a.ProtocolType, a.Protocol, a.Err)
		for _, m := range a.Members {
			text += fmt.Sprintf(" [%s %s%s %q %q]", strings.TrimSuffix(m.MemberID+"@"+m.InstanceID, "@"), m.ClientID, m.ClientHost, topicsOf(m.Metadata), m.Assignment)
		}
		return text
	case Listed:
		text := fmt.Sprint("listed ", a.Err)
		for _, g := range a.Groups {
			text += fmt.Sprintf(" [%s %s %s]", g.Group, g.ProtocolType, g.State)
		}
		return text
	case Done:
		return fmt.Sprint("done ", a.Err)
	}
	return "?"
}

// topicsOf shows a consumer's metadata, or what else it is.
func topicsOf(metadata []byte) string {
	topics := map[string]struct{}{}
	if !readTopics(metadata, topics) {
		return string(metadata)
	}
	var names []string
	for name := range topics {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}

// consumerMetadata is what a consumer that reads topics offers.
func consumerMetadata(topics ...string) []byte {
	m := kmsg.ConsumerMemberMetadata{Version: 1, Topics: topics}
	return m.AppendTo(nil)
}

// protocols reads "protocols=(range:t1+t2,sticky:t1)"; "!" begins what is no consumer's
// metadata.
func protocols(d *datadriven.TestData) []model.GroupProtocol {
	given := words(d, "protocols")
	if given == nil {
		given = []string{"range:t"}
	}
	var out []model.GroupProtocol
	for _, p := range given {
		name, what, _ := strings.Cut(p, ":")
		metadata := consumerMetadata(strings.Split(what, "+")...)
		if raw, ok := strings.CutPrefix(what, "!"); ok {
			metadata = bytes.Clone([]byte(raw))
		}
		if name != "none" {
			out = append(out, model.GroupProtocol{Name: name, Metadata: metadata})
		}
	}
	return out
}

func partition(t *testing.T, d *datadriven.TestData, s string) model.TopicPartition {
	at := strings.LastIndexByte(s, '-')
	n, err := strconv.Atoi(s[at+1:])
	if at < 0 || err != nil {
		d.Fatalf(t, "partition %q", s)
	}
	return model.TopicPartition{Topic: s[:at], Partition: int32(n)}
}

func words(d *datadriven.TestData, name string) []string {
	for _, arg := range d.CmdArgs {
		if arg.Key == name {
			return arg.Vals
		}
	}
	return nil
}

func word(t *testing.T, d *datadriven.TestData, name, def string) string {
	v := words(d, name)
	if v == nil {
		return def
	}
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

func number(t *testing.T, d *datadriven.TestData, name string, def int) int {
	if !d.HasArg(name) {
		return def
	}
	n, err := strconv.Atoi(word(t, d, name, ""))
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

func duration(t *testing.T, d *datadriven.TestData, name string, def time.Duration) time.Duration {
	if !d.HasArg(name) {
		return def
	}
	v, err := time.ParseDuration(word(t, d, name, ""))
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return v
}
