package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/brokerd/brokerd/core/doctor"
)

func TestDoctorExits(t *testing.T) {
	found := doctor.Report{Findings: []doctor.Finding{{What: "it is ill"}}}
	missing, failed := unasked{"groups", "the cluster has no ListGroups", true}, unasked{What: "groups", Why: "no answer"}
	for _, c := range []struct {
		name string
		v    diagnosis
		code int
		text string
	}{
		{"clean", diagnosis{}, exitClean, ""},
		{"what no cluster of its kind tells", diagnosis{Unasked: []unasked{missing}}, exitClean, ""},
		{"not asked for all", diagnosis{Unasked: []unasked{missing, failed}}, exitUnasked, "nothing was found, but not all could be asked: groups (no answer)"},
		{"found, whatever was not asked", diagnosis{Report: found, Unasked: []unasked{failed}}, exitFindings, "1 finding: it is ill"},
	} {
		err := c.v.verdict()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if exitCode(err) != c.code || text != c.text {
			t.Errorf("%s: code %d, %q", c.name, exitCode(err), text)
		}
	}
	if err := couldNot(t.Context(), &unreachableError{"x:1", errors.New("refused")}); exitCode(err) != exitUnasked {
		t.Errorf("nobody answers: code %d", exitCode(err))
	}
}

// What is no number, or neither true nor false, is not known.
func TestDoctorTakesSettings(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		name    string
		value   *string
		minISR  int
		unclean doctor.Answer
	}{
		{settingMinISR, text("2"), 2, doctor.Unknown},
		{settingMinISR, text("two"), 0, doctor.Unknown},
		{settingMinISR, nil, 0, doctor.Unknown},
		{settingUnclean, text("true"), 0, doctor.Yes},
		{settingUnclean, text("false"), 0, doctor.No},
		{settingUnclean, text("?"), 0, doctor.Unknown},
	} {
		var topic doctor.Topic
		takeSettings(&topic, []kmsg.DescribeConfigsResponseResourceConfig{{Name: c.name, Value: c.value}})
		if topic.MinISR != c.minISR || topic.Unclean != c.unclean {
			t.Errorf("%s=%v: %d, %d", c.name, c.value, topic.MinISR, topic.Unclean)
		}
	}
}

// TestDoctorCommand: what a newcomer with one broker is told, for people and for programs, and
// again and again until Ctrl-C.
func TestDoctorCommand(t *testing.T) {
	if code, _, errs := call(t, "", "doctor", "-b", "127.0.0.1:1"); code != exitUnasked || !strings.Contains(errs, "no broker answers at 127.0.0.1:1") {
		t.Errorf("nobody: code %d, %s", code, errs)
	}
	if code, _, errs := call(t, "", "doctor", "--fix", "--watch"); code != exitUsage || !strings.Contains(errs, "give one of --fix and --watch") {
		t.Errorf("both: code %d, %s", code, errs)
	}
	address, _ := dev(t, t.TempDir())
	code, out, errs := call(t, "", "doctor", "-b", address)
	if code != exitFindings || !strings.Contains(errs, "findings, the first of them: the quorum of controllers has 1 voter") {
		t.Errorf("one broker: code %d, %s", code, errs)
	}
	for _, want := range []string{"brokers 1, topics 0", "IF IT DIED", "high      quorum-breaks, quorum\n  what  ", "warning   one-broker, cluster\n", "\n  run   brokerd cluster status -b " + address + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not show %q:\n%s", want, out)
		}
	}
	code, out, errs = call(t, "", "doctor", "-b", address, "--json")
	var told struct {
		Findings []doctor.Finding `json:"findings"`
		Deaths   []doctor.Death   `json:"deaths"`
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil || code != exitFindings || len(told.Findings) != 2 || len(told.Deaths) != 1 || !told.Deaths[0].EndsQuorum {
		t.Errorf("for programs: %v, code %d, %s%s", err, code, out, errs)
	}
	if code, out, _ := call(t, "", "doctor", "-b", address, "--fix"); code != exitOK || !strings.Contains(out, "there is nothing that other replicas or leaders would mend") {
		t.Errorf("--fix: code %d, %s", code, out)
	}
	screen, _, end := begin(t, strings.NewReader(""), "doctor", "-b", address, "--watch=10ms")
	screen.waitFor(t, `(?s)one-broker.*one-broker.*one-broker`)
	if code := end(); code != exitInterrupted {
		t.Errorf("--watch ends with %d", code)
	}
}

// A cluster that has not all APIs is asked by those that it has, and what it has none for is told.
func TestDoctorAsksOldClusters(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	if code, _, errs := call(t, "", "topic", "create", "orders", "-p", "3", "-b", address); code != exitOK {
		t.Fatal(errs)
	}
	at := &cluster{bootstrap: address}
	client, err := at.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	whole, err := examine(t.Context(), client, at)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.unasked) != 0 || whole.seen.Topics[0].Target != 3 || whole.seen.Topics[0].MinISR != 2 || whole.seen.Topics[0].Unclean != doctor.No || !whole.seen.Quorum.Known {
		t.Errorf("not asked %v, seen %+v", whole.unasked, whole.seen)
	}
	old := &examined{client: client, at: at, view: &clusterView{}, seen: &doctor.Cluster{}, topics: map[string]int{}, apis: map[int16]bool{}}
	if err := errors.Join(old.askBrokers(t.Context()), old.askPartitions(t.Context())); err != nil {
		t.Fatal(err)
	}
	old.ask(t.Context(), "the quorum of controllers", kmsg.DescribeQuorum, func(context.Context) error { panic("asked") })
	old.apis[int16(kmsg.ListGroups)] = true
	old.ask(t.Context(), "groups", kmsg.ListGroups, func(context.Context) error { return errors.New("no answer") })
	old.dial(t.Context())
	want := []unasked{
		{"eligible leader replicas", "the cluster has no DescribeTopicPartitions", true},
		{"how many replicas topics are to have", "only brokerd tells", true},
		{"the quorum of controllers", "the cluster has no DescribeQuorum", true},
		{"groups", "no answer", false},
	}
	if diff := cmp.Diff(want, old.unasked); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(whole.seen.Brokers, old.seen.Brokers); diff != "" {
		t.Error(diff)
	}
	topic := whole.seen.Topics[0]
	topic.Partitions = slices.Clone(topic.Partitions)
	topic.Target, topic.MinISR, topic.Unclean = 0, 0, doctor.Unknown
	for i := range topic.Partitions {
		topic.Partitions[i].MinISR, topic.Partitions[i].Target = 0, 0
	}
	if diff := cmp.Diff([]doctor.Topic{topic}, old.seen.Topics, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// A partition is to have what it has and lacks: its topic's target, or what an operator chose.
func TestDoctorTakesTargets(t *testing.T) {
	for _, c := range []struct {
		name            string
		topic, missing  int
		replicas, added []int32
		want            int
	}{
		{"it has all", 3, 0, []int32{1, 2, 3}, nil, 3},
		{"it waits for brokers", 3, 2, []int32{1}, nil, 3},
		{"it is being raised", 3, 2, []int32{1, 2}, []int32{2}, 3},
		{"it was raised since", 3, 2, []int32{1, 2}, nil, 3},
		{"an operator chose two", 3, 0, []int32{1, 2}, nil, 2},
		{"and it has one", 3, 1, []int32{1}, nil, 2},
		{"it is not told", 0, 0, []int32{1, 2}, nil, 0},
	} {
		if got := targetOf(c.topic, &partitionView{missing: c.missing, replicas: c.replicas, adding: c.added}); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	e := &examined{view: &clusterView{partitions: []partitionView{{topic: "t", replicas: []int32{1, 2}}}},
		seen: &doctor.Cluster{Topics: []doctor.Topic{{Name: "t", Target: 3, Partitions: []doctor.Partition{{}}}}}}
	if e.tell(); e.seen.Topics[0].Partitions[0].Target != 2 {
		t.Errorf("told: %+v", e.seen.Topics)
	}
}

// What a death does that is not known is no number.
func TestDoctorShowsWhatIsNotKnown(t *testing.T) {
	one, two := doctor.Partitions{{Topic: "a", Partitions: []int32{7}, Of: 9}}, doctor.Partitions{{Topic: "b", Partitions: []int32{7, 8}, Of: 9}}
	var out bytes.Buffer
	d := doctoring{console: &console{out: &out}}
	for _, c := range []struct {
		death doctor.Death
		want  string
	}{
		{doctor.Death{RefusesWrites: two, Unclean: one}, "0 2 0 1 0 goes on"},
		{doctor.Death{MayRefuseWrites: one, MayBeUnclean: one}, "0 ? 0 ? 0 goes on"},
		{doctor.Death{RefusesWrites: two, MayRefuseWrites: one}, "0 2 or more 0 0 0 goes on"},
	} {
		out.Reset()
		if err := d.show(&diagnosis{Report: doctor.Report{Deaths: []doctor.Death{c.death}}}); err != nil || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), "QUORUM "+c.want) {
			t.Errorf("%v, want %s:\n%s", err, c.want, out.String())
		}
	}
}

// It is waited for those of a batch alone, and not for ever.
func TestDoctorSettles(t *testing.T) {
	for _, c := range []struct {
		name  string
		left  []int // of the batch are being moved, look by look; the last goes on
		looks int
		want  string
	}{
		{"others are moved for ever", []int{0}, 1, ""},
		{"one after the other", []int{3, 2, 2, 1, 0}, 5, ""},
		{"slowly", append(slices.Repeat([]int{3}, 4), append(slices.Repeat([]int{1}, 4), 0)...), 9, ""},
		{"one never ends", []int{3, 1}, 7, "1 of 3 partitions are still being moved, t-0 among them, and none got there for 5m0s"},
	} {
		v := &clusterView{partitions: []partitionView{{topic: "t"}, {topic: "t", index: 1}, {topic: "t", index: 2}, {topic: "u", adding: []int32{1}}}}
		now, looks := time.Unix(0, 0), 0
		var said []string
		s := settling{
			ask: func(context.Context) error {
				for i := range c.left[min(looks, len(c.left)-1)] {
					v.partitions[i].adding = []int32{2}
				}
				looks++
				return nil
			},
			pause: func(context.Context) error { now = now.Add(settleMax / 5); return nil },
			now:   func() time.Time { return now },
			say:   func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
		}
		for i := range 3 {
			s.batch = append(s.batch, move{partition: &v.partitions[i]})
		}
		err := s.settle(t.Context())
		text := ""
		if err != nil {
			text = err.Error()
		}
		if looks != c.looks || c.want == "" && err != nil || !strings.Contains(text, c.want) || len(said) != looks-1 {
			t.Errorf("%s: %d looks, said %q, %v", c.name, looks, said, err)
		}
	}
}
