package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// toldDiagnosis is what is looked at of `brokerd doctor`.
type toldDiagnosis struct {
	Findings []struct {
		ID      string `json:"id"`
		Subject struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"subject"`
		Partitions []struct {
			Topic      string  `json:"topic"`
			Partitions []int32 `json:"partitions"`
		} `json:"partitions"`
		Groups []string `json:"groups"`
	} `json:"findings"`
	Unasked []struct {
		What string `json:"what"`
	} `json:"unasked"`
}

// ids are the findings in short: the ID, and what it is about.
func (d *toldDiagnosis) ids() (out []string) {
	for _, f := range d.Findings {
		out = append(out, strings.TrimSpace(f.ID+" "+f.Subject.Name))
	}
	return out
}

// doctor asks what is wrong, and returns the exit code with it.
func (b *broker) doctor(ctx context.Context) (d toldDiagnosis, code int, err error) {
	path, err := executable()
	if err != nil {
		return d, 0, err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "doctor", "--json", "-b", b.addr())
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return d, 0, err
	}
	if out.Len() > 0 {
		err = json.Unmarshal(out.Bytes(), &d)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s%s", err, out.String(), errs.String())
	}
	return d, cmd.ProcessState.ExitCode(), err
}

// diagnosed waits until the doctor ends with this code and has found these, among others; of
// some with | between, one.
func (b *broker) diagnosed(code int, want ...string) (d toldDiagnosis) {
	b.t.Helper()
	ctx := testContext(b.t, startTimeout)
	if err := eventually(ctx, func() error {
		var got int
		var err error
		d, got, err = b.doctor(ctx)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(id string) bool {
			return slices.ContainsFunc(strings.Split(id, "|"), func(id string) bool { return slices.Contains(d.ids(), id) })
		})
		if got != code || len(missing) > 0 {
			return fmt.Errorf("the doctor ends with %d and has found %q, want %d and %q too; not asked: %v", got, d.ids(), code, missing, d.Unasked)
		}
		return nil
	}); err != nil {
		b.t.Fatalf("%v\n%s", err, b.tail())
	}
	return d
}

// billed has a group that has read a topic.
func (b *broker) billed(topic string) {
	b.t.Helper()
	ctx := testContext(b.t, startTimeout)
	if err := newClient(b.t, b.addr()).ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
		b.t.Fatalf("%v\n%s", err, b.tail())
	}
	if _, err := b.command("consume", "-t", topic, "--group", "billing", "--from-beginning", "-e", "-b", b.addr()); err != nil {
		b.t.Fatalf("%v\n%s", err, b.tail())
	}
}

// TestDoctor: three brokers are well, and of two it is said what they cannot lose; a topic with
// one replica is found, and mended.
func TestDoctor(t *testing.T) {
	t.Parallel()
	b := startBrokers(t, 3)
	createTopic(t, b.addr(), "orders", 3)
	b.billed("orders")
	if d := b.diagnosed(0); len(d.Findings)+len(d.Unasked) > 0 {
		t.Errorf("of three brokers that are well: %q, not asked %v", d.ids(), d.Unasked)
	}
	b.dev("kill", 2)
	d := b.diagnosed(1, "broker-dead 2", "two-brokers", "quorum-breaks", "voter-silent 2", "death-stops-groups 1|death-stops-groups 3", "death-stops 1", "death-stops 3", "death-refuses-writes 3")
	for _, id := range d.ids() {
		if slices.Contains([]string{"leaderless", "group-without-coordinator", "under-min-isr", "death-loses 1", "death-loses 3"}, id) {
			t.Errorf("two of three serve, and it has found %s", id)
		}
	}
	b.dev("restart", 2)
	b.diagnosed(0)
	if _, err := newAdmin(t, b.addr()).CreateTopic(testContext(t, startTimeout), 2, 1, nil, "single"); err != nil {
		t.Fatal(err)
	}
	b.diagnosed(1, "replication-factor-one single")
	if out, err := b.command("doctor", "--fix", "--yes", "-b", b.addr()); err != nil || !strings.Contains(out, "2 partitions get other replicas") {
		t.Fatalf("%v\n%s\n%s", err, out, b.tail())
	}
	b.diagnosed(0)
}

// TestDoctorOfOneBroker: all that it has would be gone with it. And of nobody, nothing is told.
func TestDoctorOfOneBroker(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	if _, err := newAdmin(t, b.addr()).CreateTopic(testContext(t, startTimeout), 2, 1, nil, "single"); err != nil {
		t.Fatal(err)
	}
	createTopic(t, b.addr(), "orders", 3)
	b.billed("orders")
	d := b.diagnosed(1, "death-stops-groups 1", "death-stops 1", "death-loses 1", "quorum-breaks",
		"internal-below-target __consumer_offsets", "below-target orders", "replication-factor-one single", "one-broker")
	for _, f := range d.Findings {
		if f.ID == "death-stops-groups" && !slices.Equal(f.Groups, []string{"billing"}) {
			t.Errorf("groups %q", f.Groups)
		}
		if f.ID != "death-loses" {
			continue
		}
		var got []string
		for _, p := range f.Partitions {
			got = append(got, p.Topic+" "+strconv.Itoa(len(p.Partitions)))
		}
		if want := []string{"__consumer_offsets 50", "orders 3", "single 2"}; !slices.Equal(got, want) {
			t.Errorf("it would lose %q, want %q", got, want)
		}
	}
	b.stop()
	b.diagnosed(2)
}
