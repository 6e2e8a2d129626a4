package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// caller runs command lines against one broker.
func caller(t *testing.T, address string) func(in string, want int, args string) (string, string) {
	return func(in string, want int, args string) (string, string) {
		t.Helper()
		code, out, errs := call(t, in, append(strings.Fields(args), "-b", address)...)
		if code != want {
			t.Fatalf("brokerd %s: code %d, want %d\n%s%s", args, code, want, out, errs)
		}
		return out, errs
	}
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// follow runs a command until stop is called, which returns its exit code.
func follow(t *testing.T, args ...string) (out *screen, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out = newScreen()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, &console{in: strings.NewReader(""), out: out, err: newScreen()}, args) }()
	return out, func() int {
		cancel()
		return <-ended
	}
}

// A group's life: it consumes and commits, is shown, is moved and deleted.
func TestGroupCommands(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	call := caller(t, address)
	_, errs := call("", exitOK, "group list")
	same(t, errs, "there are no such groups; `brokerd consume -t TOPIC --group NAME` makes one\n")
	call("", exitOK, "topic create orders -p 2")
	call("a\nb\nc\n", exitOK, "produce -t orders -p 0")
	call("d\n", exitOK, "produce -t orders -p 1")

	out, _ := call("", exitOK, "consume -t orders -g billing --from-beginning -e")
	if lines := strings.Fields(out); len(lines) != 4 {
		t.Errorf("the group read %q", lines)
	}
	out, _ = call("", exitOK, "consume -t orders -g billing --from-beginning -e")
	same(t, out, "")
	out, _ = call("", exitOK, "group list")
	same(t, out, "GROUP    STATE  TYPE\nbilling  Empty  consumer\n")

	call("e\nf\n", exitOK, "produce -t orders -p 1")
	out, _ = call("", exitOK, "group describe billing")
	same(t, out, `group        billing
state        Empty
assignor     -
coordinator  1
members      0
lag          2

TOPIC   PARTITION  COMMITTED  END  LAG  MEMBER  HOST  ERROR
orders  0          3          3    0    -       -
orders  1          1          3    2    -       -
`)
	out, _ = call("", exitOK, "consume -t orders -g billing -n 1")
	same(t, out, "e\n") // and nothing behind it is committed
	out, _ = call("", exitOK, "consume -t orders -g billing -e")
	same(t, out, "f\n")

	dry, errs := call("", exitOK, "group reset-offsets billing -t orders --to-earliest")
	same(t, dry, "TOPIC   PARTITION  COMMITTED  NEW  LAG\norders  0          3          0    3\norders  1          3          0    3\n")
	same(t, errs, "nothing was changed; add --execute to commit these offsets\n")
	out, _ = call("", exitOK, "consume -t orders -g billing -e")
	same(t, out, "")
	done, errs := call("", exitOK, "group reset-offsets billing -t orders:0 --shift-by -1 --execute")
	same(t, done, "TOPIC   PARTITION  COMMITTED  NEW  LAG\norders  0          3          2    1\n")
	same(t, errs, "committed the offsets of 1 partition for billing\n")
	out, _ = call("", exitOK, "consume -t orders -g billing -e")
	same(t, out, "c\n")

	call("", exitUsage, "group delete billing")
	out, _ = call("", exitOK, "group delete billing --yes")
	same(t, out, "deleted billing\n")
	for _, gone := range []string{"group describe billing", "group delete billing --yes", "group reset-offsets billing --all-topics --to-latest"} {
		_, errs = call("", exitNotFound, gone)
		if !strings.Contains(errs, "there is no such group") && !strings.Contains(errs, "the group has committed nothing") {
			t.Errorf("%s: %s", gone, errs)
		}
	}
}

// A group with members is neither moved nor deleted; members share partitions, and
// one that ends gives them back.
func TestGroupWithMembers(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	call := caller(t, address)
	call("", exitOK, "topic create orders -p 2")
	call("0\n", exitOK, "produce -t orders -p 0")
	call("1\n", exitOK, "produce -t orders -p 1")
	consume := []string{"consume", "-t", "orders", "-g", "billing", "--from-beginning", "-b", address}
	first, stopFirst := follow(t, consume...)
	first.waitFor(t, `(?s)(0.*1|1.*0)`)

	for _, refused := range []string{
		"group reset-offsets billing -t orders --to-earliest",
		"group reset-offsets billing -t orders --to-earliest --execute",
		"group delete billing --yes",
	} {
		_, errs := call("", exitRefused, refused)
		if !strings.Contains(errs, "billing: the group has members; stop them first (NON_EMPTY_GROUP)") {
			t.Errorf("%s: %s", refused, errs)
		}
	}
	second, stopSecond := follow(t, consume...)
	shown := eventually(t, call, "group describe billing -o json", func(g *describedGroup) bool {
		return g.State == "Stable" && len(g.Members) == 2 && g.Members[0].Partitions == 1 && g.Members[1].Partitions == 1
	})
	if p := shown.Partitions; len(p) != 2 || p[0].Member == p[1].Member || p[0].Member == "" || p[0].Host != "127.0.0.1" || *p[0].Committed != 1 || *p[0].Lag != 0 {
		t.Errorf("partitions %+v", p)
	}
	out, _ := call("", exitOK, "group describe billing --members")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 10 || !strings.HasPrefix(lines[7], "MEMBER") || !strings.Contains(lines[8], "127.0.0.1  brokerd  1") {
		t.Errorf("members:\n%s", out)
	}
	if out, _ := call("", exitOK, "consume -t orders -g billing --from-beginning -e"); out != "" {
		t.Errorf("a third member, with nothing to read, read %q", out)
	}
	if code := stopFirst(); code != exitOK {
		t.Errorf("the first member ended with code %d", code)
	}
	call("2\n", exitOK, "produce -t orders -p 0")
	call("3\n", exitOK, "produce -t orders -p 1")
	second.waitFor(t, `(?s)(2.*3|3.*2)`)
	if code := stopSecond(); code != exitOK {
		t.Errorf("the second member ended with code %d", code)
	}
	last := eventually(t, call, "group describe billing -o json", func(g *describedGroup) bool { return g.State == groupEmpty })
	if last.Lag != 0 || len(last.Members) != 0 {
		t.Errorf("in the end %+v", last)
	}
	if strings.ContainsAny(second.String(), "01") {
		t.Errorf("what the first had committed was read again: %q", second)
	}
}

// What a group had committed may be gone from the log meanwhile, by age or by hand: it
// goes on where it is told that groups begin, and -e ends.
func TestGroupBehindTheLog(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	call := caller(t, address)
	call("", exitOK, "topic create orders")
	call("a\nb\nc\nd\n", exitOK, "produce -t orders")
	for _, g := range []string{"late", "early"} {
		call("", exitOK, "consume -t orders -g "+g+" --from-beginning -n 1")
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	trim := func(before int64) {
		t.Helper()
		var to kadm.Offsets
		to.AddOffset("orders", 0, before, -1)
		if answers, err := kadm.NewClient(client).DeleteRecords(t.Context(), to); errors.Join(err, answers.Error()) != nil {
			t.Fatal(err, answers.Error())
		}
	}
	trim(3)
	out, _ := call("", exitOK, "consume -t orders -g early --from-beginning -e")
	same(t, out, "d\n")
	out, _ = call("", exitOK, "consume -t orders -g late -e")
	same(t, out, "")
	trim(4)
	out, _ = call("", exitOK, "consume -t orders -g late --from-beginning -e")
	same(t, out, "")
}

// gate is a screen that takes nothing until it is opened, and tells when something comes.
type gate struct {
	*screen
	came, open chan struct{}
	once       sync.Once
}

func (g *gate) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.came) })
	<-g.open
	return g.screen.Write(p)
}

// A member whose commit is refused, since it was thrown out while it printed, commits
// once it is in the group again, and does not end before.
func TestGroupCommitRefused(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	call := caller(t, address)
	call("", exitOK, "topic create orders")
	call("a\nb\n", exitOK, "produce -t orders")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, errs := &gate{screen: newScreen(), came: make(chan struct{}), open: make(chan struct{})}, newScreen()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, &console{in: strings.NewReader(""), out: out, err: errs},
			[]string{"consume", "-t", "orders", "-g", "billing", "--from-beginning", "-e", "-b", address})
	}()
	<-out.came
	g := eventually(t, call, "group describe billing -o json", func(g *describedGroup) bool { return len(g.Members) == 1 })
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.Members = "billing", []kmsg.LeaveGroupRequestMember{{MemberID: g.Members[0].ID}}
	if resp, err := leave.RequestWith(t.Context(), client); err != nil || resp.ErrorCode != 0 || resp.Members[0].ErrorCode != 0 {
		t.Fatalf("%+v, %v", resp, err)
	}
	close(out.open)
	if code := <-ended; code != exitOK || out.String() != "a\nb\n" || !strings.Contains(errs.String(), "before 2 records could be committed") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	told, _ := call("", exitOK, "group describe billing -o json")
	if !strings.Contains(told, `"committed": 2`) {
		t.Errorf("in the end %s", told)
	}
}

// A coordinator that is not there yet is asked again, though not for ever; every
// other answer is one.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			answers []error // the last one again and again
			want    error
			took    time.Duration
		}{
			{[]error{nil}, nil, 0},
			{[]error{kerr.NonEmptyGroup}, kerr.NonEmptyGroup, 0},
			{[]error{kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, nil}, nil, 3 * coordinatorPause},
			{[]error{kerr.CoordinatorLoadInProgress}, kerr.CoordinatorLoadInProgress, coordinatorPatience},
		} {
			begun, asked := time.Now(), 0
			err := patiently(t.Context(), func() error {
				asked++
				return tc.answers[min(asked, len(tc.answers))-1]
			})
			if took := time.Since(begun); !errors.Is(err, tc.want) || took < tc.took || took > tc.took+coordinatorPause {
				t.Errorf("%v: %v after %s and %d questions", tc.answers, err, took, asked)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := patiently(ctx, func() error {
			cancel()
			return kerr.CoordinatorNotAvailable
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
	})
}

// eventually asks until the group is as it should be.
func eventually(t *testing.T, call func(string, int, string) (string, string), args string, ok func(*describedGroup) bool) *describedGroup {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); ; {
		out, _ := call("", exitOK, args)
		var g describedGroup
		if err := json.Unmarshal([]byte(out), &g); err != nil {
			t.Fatal(err)
		}
		if ok(&g) {
			return &g
		}
		if time.Now().After(late) {
			t.Fatalf("after 30 s: %s", out)
		}
	}
}

func TestResetMistakes(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	call := caller(t, address)
	call("", exitOK, "topic create orders -p 2")
	for args, want := range map[string]string{
		"-t nosuch --to-latest":     "reset offsets of g in nosuch: there is no such topic",
		"-t orders:0,5 --to-latest": "there is no partition 5; `brokerd topic describe orders` shows",
		"-t orders --shift-by 1":    "reset offsets of g in orders, partition 0: nothing is committed that could be shifted",
		"--all-topics --to-latest":  "the group has committed nothing; name topics with -t",
	} {
		if _, errs := call("", exitNotFound, "group reset-offsets g --execute "+args); !strings.Contains(errs, want) {
			t.Errorf("%s: %s", args, errs)
		}
	}
	_, errs := call("", exitNotFound, "group describe g")
	if !strings.Contains(errs, "describe g: there is no such group; `brokerd group list` shows those that are") {
		t.Errorf("a refused reset left something: %s", errs)
	}
}

func TestResetTargets(t *testing.T) {
	at := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		name      string
		s         resetting
		committed *int64
		stamped   int64
		want      int64
	}{
		{"earliest", resetting{earliest: true}, nil, 0, 10},
		{"latest", resetting{latest: true}, at(12), 0, 20},
		{"an offset", resetting{hasOffset: true, offset: 15}, nil, 0, 15},
		{"an offset before the log", resetting{hasOffset: true, offset: 5}, nil, 0, 10},
		{"an offset behind the log", resetting{hasOffset: true, offset: 500}, nil, 0, 20},
		{"back", resetting{hasShift: true, shift: -3}, at(18), 0, 15},
		{"back beyond the beginning", resetting{hasShift: true, shift: math.MinInt64}, at(18), 0, 10},
		{"forward", resetting{hasShift: true, shift: 1}, at(18), 0, 19},
		{"forward beyond the end", resetting{hasShift: true, shift: math.MaxInt64}, at(18), 0, 20},
		{"a time", resetting{since: time.Unix(1, 0)}, nil, 13, 13},
		{"a time after the last record", resetting{since: time.Unix(1, 0)}, at(12), -1, 20},
	} {
		commits := make(kadm.OffsetResponses)
		if tc.committed != nil {
			commits.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "t", At: *tc.committed}})
		}
		listed := func(n int64) kadm.ListedOffsets {
			return kadm.ListedOffsets{"t": {0: {Topic: "t", Offset: n}}}
		}
		p, err := tc.s.planOne("t", 0, logEnds{starts: listed(10), ends: listed(20), stamped: listed(tc.stamped)}, commits)
		if err != nil || p.New != tc.want || p.Lag != 20-tc.want || (p.Committed == nil) != (tc.committed == nil) {
			t.Errorf("%s: %+v, %v; want %d", tc.name, p, err, tc.want)
		}
	}
}

func TestParseAgo(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"15m": 15 * time.Minute, "1h30m": 90 * time.Minute, "PT1H": time.Hour, "P2D": 48 * time.Hour,
		"P1DT12H30M5S": 36*time.Hour + 30*time.Minute + 5*time.Second, "PT0.5S": 500 * time.Millisecond,
	} {
		if got, ok := parseAgo(text); !ok || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, ok, want)
		}
	}
	for _, bad := range []string{"", "P", "PT", "P1DT", "P1H", "PT1D", "P-1D", "soon", "1", "PT1h", "P999999999D"} {
		if got, ok := parseAgo(bad); ok {
			t.Errorf("%q is %s", bad, got)
		}
	}
}

// What has nothing committed has no lag that anybody could know.
func TestGroupedPartition(t *testing.T) {
	lag := kadm.GroupMemberLag{Topic: "t", Commit: kadm.Offset{At: -1}, End: kadm.ListedOffset{Offset: 9}, Lag: 9}
	if p := newGroupedPartition(&lag); p.Committed != nil || p.Lag != nil || *p.LogEnd != 9 {
		t.Errorf("nothing committed: %+v", p)
	}
	lag.Commit.At = 11 // the log was truncated, or recreated
	if p := newGroupedPartition(&lag); *p.Lag != 0 {
		t.Errorf("committed beyond the end: %+v", p)
	}
	lag.End, lag.Err = kadm.ListedOffset{Err: kerr.UnknownTopicOrPartition}, kerr.UnknownTopicOrPartition
	if p := newGroupedPartition(&lag); p.LogEnd != nil || p.Lag != nil || p.Error != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("a topic that is gone: %+v", p)
	}
}

func TestResetOfNoGroup(t *testing.T) {
	code, _, errs := call(t, "", "group", "reset-offsets", "", "-t", "orders", "--to-latest")
	if code != exitUsage || !strings.Contains(errs, "name a group") {
		t.Errorf("code %d, %q", code, errs)
	}
}

// Brokers take negative times for the ends of the log.
func TestStampBefore1970(t *testing.T) {
	for text, want := range map[string]int64{"0001-01-02": 0, "1969-12-31T23:59:59.999Z": 0, "1970-01-01T00:00:00.001Z": 1} {
		if at, ok := parseMoment(text); !ok || stamp(at) != want {
			t.Errorf("%s: %d, want %d", text, stamp(at), want)
		}
	}
}

// A commit that a rebalance overtook is no end, nor a broker that starts again; what a
// client cannot mend is.
func TestGroupSessionErrors(t *testing.T) {
	m := &membership{s: &consuming{topic: "t", group: "g"}}
	for err, ends := range map[error]bool{
		kerr.RebalanceInProgress: false, kerr.IllegalGeneration: false, kerr.UnknownMemberID: false, kerr.NotCoordinator: false,
		fmt.Errorf("unable to dial: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}): false,
		io.ErrUnexpectedEOF:           false,
		kerr.GroupAuthorizationFailed: true, kerr.FencedInstanceID: true, kerr.UnsupportedVersion: true,
	} {
		got := m.fetchError(kgo.FetchError{Err: &kgo.ErrGroupSession{Err: err}})
		if (got != nil) != ends || (ends && (exitCode(got) != exitRefused || !strings.Contains(got.Error(), "consume as a member of g: "))) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
