package api

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recorded is a request as a real client sent it.
type recorded struct {
	client string
	key    int16
	ver    int16
	body   []byte
}

func (r recorded) String() string { return fmt.Sprintf("%s %d %d", r.client, r.key, r.ver) }

func recordings(t *testing.T) []recorded {
	t.Helper()
	f, err := os.Open("testdata/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []recorded
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var r recorded
		var body string
		if _, err := fmt.Sscan(lines.Text(), &r.client, &r.key, &r.ver, &body); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if r.body, err = hex.DecodeString(strings.TrimPrefix(body, "-")); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// goldenCluster is what the recorded requests are about.
func goldenCluster(t *testing.T, r recorded) *Handler {
	key := r.key
	c := newCluster(t)
	goldenGroups(t, c.groups, r)
	c.topic("orders", self, self)
	if c.topic("jt", self, self, self); key != wire.KeyCreatePartitions {
		c.apply(&image.PartitionRecord{Partition: model.Partition{Topic: topicID("jt"), Index: 3}, Registration: image.Partition{
			Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{{1}}, ISR: []model.NodeID{1}, Leader: 1, LeaderEpoch: 7}})
	}
	return newHandler(c, func(_ *Config, d *Deps) {
		d.Now = func() time.Time { return time.Date(2026, 11, 29, 22, 30, 0, 0, time.UTC) }
	})
}

// goldenGroups has the groups of the recorded requests, with the members that leave.
func goldenGroups(t *testing.T, g *coordinator, r recorded) {
	for _, name := range []string{"crew", "jt"} {
		switch g.offset(name, "orders", 0, 7); r.key {
		case wire.KeyDeleteGroups, wire.KeyOffsetDelete: // they have no members any more
		default:
			g.stable(name)
		}
	}
	if r.key != wire.KeyLeaveGroup {
		return
	}
	req, err := wire.NewTable().Decode(wire.Header{Key: r.key, Version: r.ver}, r.body)
	if err != nil {
		t.Fatal(err)
	}
	leave := req.(*kmsg.LeaveGroupRequest)
	for _, m := range leave.Members {
		leave.MemberID = m.MemberID
	}
	g.groups[leave.Group].Members[0].MemberID = leave.MemberID
}

// The codec reads what real clients write, and writes the same bytes again.
func TestRecordedRequestsRoundTrip(t *testing.T) {
	table := wire.NewTable()
	for _, r := range recordings(t) {
		if r.key == wire.KeyProduce || r.key == wire.KeyFetch || r.key == wire.KeyOffsetCommit {
			continue // see core/wire
		}
		req, err := table.Decode(wire.Header{Key: r.key, Version: r.ver}, r.body)
		if err != nil {
			t.Errorf("%s: %v", r, err)
			continue
		}
		if got := req.AppendTo(nil); !bytes.Equal(got, r.body) {
			t.Errorf("%s: wrote %x, the client %x", r, got, r.body)
		}
	}
}

// Requests of real clients get the answers that those clients went on with. The
// bytes are compared where they depend on nothing but the protocol: not those of
// versions and settings, which grow, nor those with a random session.
func TestRecordedRequestsAreAnswered(t *testing.T) {
	want := answers(t)
	var out strings.Builder
	for i, r := range recordings(t) {
		h := goldenCluster(t, r)
		call := wire.Call{Header: wire.Header{Key: r.key, Version: r.ver, ClientID: r.client}, Body: r.body, From: wire.Peer{Listener: listener}}
		reply := begin(t.Context(), h, call)(t.Context())
		body := encoded(r.ver, reply)
		if reply.Close || body == nil {
			t.Errorf("%s: %+v", r, reply)
			continue
		}
		if got := failure(read(t, r.key, r.ver, body)); len(got) > 0 && r.key != wire.KeyCreateTopics { // the topic is there already
			t.Errorf("%s: error codes %v", r, got)
		}
		got := hex.EncodeToString(body)
		switch r.key {
		case wire.KeyAPIVersions, wire.KeyFetch, wire.KeyCreateTopics, wire.KeyDescribeConfigs:
			got = "-"
		}
		line := fmt.Sprintf("%s %s", r, got)
		fmt.Fprintln(&out, line)
		if *record {
			continue
		}
		if i >= len(want) || want[i] != line {
			t.Errorf("%s is answered\n%s", r, line)
		}
	}
	if *record {
		if err := os.WriteFile(answersFile, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var record = flag.Bool("record", false, "write testdata/answers.txt; only after the clients in it were seen to work")

const answersFile = "testdata/answers.txt"

func answers(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(answersFile)
	if err != nil && !*record {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}
