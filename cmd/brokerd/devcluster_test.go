package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/cmd/brokerd/internal/processes"
	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/config"
)

// What each broker is started with is a configuration of its own, and has no secret in it.
func TestSettingsOfSeveralBrokers(t *testing.T) {
	t.Setenv("BROKERD_ADVERTISED_LISTENERS", "PLAINTEXT://elsewhere:1")
	t.Setenv("BROKERD_DATA", "/nowhere")
	d := devCluster{data: t.TempDir(), port: 9092, set: []string{"num.partitions=7", "group.initial.rebalance.delay.ms=5"}}
	if err := d.state.Grow(3); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.secret, err = processes.Secret(d.data); err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(d.secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.check(3); err != nil {
		t.Fatal(err)
	}
	all := make(map[int]config.Loaded)
	load := func() {
		for n := 1; n <= 3; n++ {
			args := d.arguments(n)
			if strings.Contains(strings.Join(args, " "), strings.TrimSpace(string(secret))) {
				t.Errorf("anybody on this machine can read the secret: %q", args)
			}
			var opts runOptions
			for _, a := range args[2:] {
				if a != "--set" {
					opts.set = append(opts.set, a)
				}
			}
			if all[n], err = opts.load(os.Environ()); err != nil {
				t.Fatalf("broker %d: %v", n, err)
			}
		}
	}
	load()
	if c := all[1].Cluster; !c.Bootstrap || len(c.Seeds) != 0 {
		t.Errorf("the first one is to create a cluster: %+v", c)
	}
	for n, cfg := range all {
		want := 9092 + n - 1
		if cfg.NodeID != int32(n) || cfg.Data != filepath.Join(d.data, "broker-"+string(rune('0'+n))) || cfg.Listeners[0].Port != want ||
			cfg.Listeners[0].Host != "127.0.0.1" || len(cfg.Advertised) != 0 || cfg.Topics.Partitions != 7 || cfg.Groups.InitialDelay.Milliseconds() != 5 {
			t.Errorf("broker %d: %+v", n, cfg.Config)
		}
		if !cfg.Transport.Used() || !strings.Contains(string(cfg.Transport.Config), d.state.Endpoints[n-1]) {
			t.Errorf("broker %d has the transport %s", n, cfg.Transport.Config)
		}
		if n > 1 && (cfg.Cluster.Bootstrap || !slices.Contains(cfg.Cluster.Seeds, d.state.Endpoints[0]) || slices.Contains(cfg.Cluster.Seeds, d.state.Endpoints[n-1])) {
			t.Errorf("broker %d: %+v", n, cfg.Cluster)
		}
	}
	d.state.Founded = true
	load()
	if c := all[1].Cluster; c.Bootstrap || !slices.Equal(c.Seeds, d.state.Endpoints[1:]) {
		t.Errorf("the cluster was created, and the first one is told %+v", c)
	}
}

// What is said of the transport is in place of the secret, at an address of each broker's own.
func TestTransportOfSeveralBrokers(t *testing.T) {
	d := devCluster{data: t.TempDir(), port: 9092, secret: "file"}
	if err := d.state.Grow(3); err != nil {
		t.Fatal(err)
	}
	section := func(n int) string {
		for _, pair := range d.settings(n) {
			if text, ok := strings.CutPrefix(pair, "transport.config="); ok {
				return text
			}
		}
		return ""
	}
	if got := section(2); got != `{"listen":"`+d.state.Endpoints[1]+`","secret_file":"file"}` {
		t.Errorf("by default: %s", got)
	}
	d.set = []string{
		`transport.config={"secret_file":"another"}`, "log.level=debug", `transport.config={"security":"plaintext"}`, "num.partitions=7",
	}
	if err := d.takeTransport(); err != nil {
		t.Fatal(err)
	}
	if got := section(2); got != `{"listen":"`+d.state.Endpoints[1]+`","security":"plaintext"}` {
		t.Errorf("where it is said, the last one counts: %s", got)
	}
	if err := d.check(3); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{`{"listen":"127.0.0.1:1"}`, "plaintext", "null"} {
		other := devCluster{set: []string{"transport.config=" + wrong}}
		if err := other.takeTransport(); exitCode(err) != exitUsage {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// One broker's directory is never taken for several ones', nor the other way around.
func TestDirectoryOfOneOrSeveral(t *testing.T) {
	one, several := t.TempDir(), t.TempDir()
	devOnce(t, one)
	var s processes.State
	if err := s.Grow(3); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(several); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		dir         string
		asked, want int
		err         string
	}{
		{t.TempDir(), 0, 1, ""},
		{t.TempDir(), 3, 3, ""},
		{one, 0, 1, ""},
		{one, 1, 1, ""},
		{one, 3, 0, "is the directory of one broker"},
		{several, 0, 3, ""},
		{several, 3, 3, ""},
		{several, 5, 5, ""},
		{several, 1, 0, "is the directory of 3 brokers"},
		{several, 2, 0, "say --brokers 3"},
	} {
		_, got, err := devBrokers(tc.dir, tc.asked)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && (!strings.Contains(err.Error(), tc.err) || exitCode(err) != exitUsage) {
			t.Errorf("--brokers %d on %s: %d, %v; want %d, %q", tc.asked, tc.dir, got, err, tc.want, tc.err)
		}
	}
	for _, args := range []string{"dev status --data", "dev kill 1 --data"} {
		if code, _, errs := call(t, "", append(strings.Fields(args), one)...); code != exitNotFound || !strings.Contains(errs, "no `brokerd dev --brokers N` runs on "+one) {
			t.Errorf("%s: code %d, %s", args, code, errs)
		}
	}
	held, err := broker.LockDirectory(several)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := call(t, "", "dev", "--data", several, "--port", "0"); code != exitInUse || !strings.Contains(errs, "is held by the brokerd with process ID") {
		t.Errorf("twice: code %d, %s", code, errs)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}
