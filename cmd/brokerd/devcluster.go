package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/brokerd/brokerd/cmd/brokerd/internal/processes"
	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/quorum"
)

// devCluster is `brokerd dev` with several brokers.
type devCluster struct {
	data      string
	port      int // of the first broker's clients; 0: free ones
	adminPort int // likewise, of metrics
	set       []string
	state     processes.State
	secret    string         // the file
	transport map[string]any // what --set says of the transport, but where it listens
}

// devBrokers is how many brokers are to run on a data directory: as many as were asked
// for, or as ran there before. asked is 0 where nobody said.
func devBrokers(data string, asked int) (processes.State, int, error) {
	state, there, err := processes.Kept(data)
	if err != nil {
		return state, 0, err
	}
	if !there {
		if asked > 1 {
			if _, err := os.Stat(quorum.Database(filepath.Join(data, "quorum"))); err == nil {
				return state, 0, &usageError{fmt.Sprintf("%s is the directory of one broker: name another with --data, or leave --brokers out", data)}
			}
		}
		return state, max(asked, 1), nil
	}
	before := len(state.Endpoints)
	if asked != 0 && asked < before {
		return state, 0, &usageError{fmt.Sprintf("%s is the directory of %d brokers, of which none can be left out: say --brokers %d, or name another with --data", data, before, before)}
	}
	return state, max(asked, before), nil
}

// devData is the data directory of a command, as a broker would have it.
func devData(cmd *cobra.Command, flag string) string {
	if env := os.Getenv("BROKERD_DATA"); env != "" && !cmd.Flags().Changed("data") {
		return env
	}
	return flag
}

// decided are the settings that several brokers on one machine cannot share.
var decided = []string{
	"node.id", "data", "listeners", "advertised.listeners", "admin.listen",
	"cluster.bootstrap", "cluster.seeds", "transport.plugin",
}

// run runs the brokers until ctx ends.
func (d *devCluster) run(ctx context.Context, c *console, brokers int) (err error) {
	for _, pair := range d.set {
		if name, _, _ := strings.Cut(pair, "="); slices.Contains(decided, name) {
			return &usageError{fmt.Sprintf("--set %s: with several brokers, each has its own", name)}
		}
	}
	if err := d.takeTransport(); err != nil {
		return err
	}
	if d.port != 0 && (d.port < 1 || d.port+brokers-1 > 65535) {
		return &usageError{fmt.Sprintf("--port %d: a port is a number from 0 to 65535, and each broker needs one, the next after the one before", d.port)}
	}
	if d.adminPort != 0 && (d.adminPort < 1 || d.adminPort+brokers-1 > 65535) {
		return &usageError{fmt.Sprintf("--admin-port %d: a port is a number from 0 to 65535, and each broker needs one, the next after the one before", d.adminPort)}
	}
	if d.data, err = filepath.Abs(d.data); err != nil {
		return fmt.Errorf("find the data directory: %w", err)
	}
	if err := checkMakeable(d.data); err != nil {
		return startError(&configError{fmt.Errorf("data: %w", err)})
	}
	held, err := broker.LockDirectory(d.data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release()) }()
	if err := d.state.Grow(brokers); err != nil {
		return err
	}
	if d.secret, err = processes.Secret(d.data); err != nil {
		return err
	}
	if err := d.state.Save(d.data); err != nil {
		return err
	}
	if err := d.check(brokers); err != nil {
		return err
	}
	return d.startAll(ctx, c, brokers)
}

// takeTransport takes what --set says of the transport out of the settings: it is in
// place of the secret that brokers on one machine share else.
func (d *devCluster) takeTransport() error {
	const name = "transport.config="
	for i, pair := range d.set {
		section, ok := strings.CutPrefix(pair, name)
		if !ok {
			continue
		}
		d.transport = nil // what is decoded into a map is added to it
		if err := json.Unmarshal([]byte(section), &d.transport); err != nil || d.transport == nil {
			return &usageError{fmt.Sprintf("--set %s: want JSON with several brokers, such as {\"security\":\"plaintext\"}", pair)}
		}
		if _, ok := d.transport["listen"]; ok {
			return &usageError{fmt.Sprintf("--set %s: leave listen out: with several brokers, each has its own", pair)}
		}
		d.set = slices.Delete(slices.Clone(d.set), i, i+1)
		return d.takeTransport() // the last one counts
	}
	return nil
}

// check says what is wrong with the settings, before any broker does.
func (d *devCluster) check(brokers int) error {
	for n := 1; n <= brokers; n++ {
		if _, err := (&runOptions{set: d.settings(n)}).load(os.Environ()); err != nil {
			return err
		}
	}
	return nil
}

func (d *devCluster) startAll(ctx context.Context, c *console, brokers int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ready := make(chan []processes.Status, 1)
	var greeted error
	var greeter sync.WaitGroup
	greeter.Go(func() {
		select {
		case all := <-ready:
			awaitVoters(ctx, all)
			if ctx.Err() == nil {
				_, greeted = fmt.Fprint(c.out, clusterGreeting(all, d.data))
			}
		case <-ctx.Done():
		}
	})
	err := processes.Run(ctx, processes.Config{
		Data: d.data, Brokers: brokers, Console: c.err, Founded: d.state.Founded, Arguments: d.arguments,
		OnFounded: func() error {
			d.state.Founded = true
			return d.state.Save(d.data)
		},
		OnReady: func(all []processes.Status) { ready <- all },
	})
	stop()
	greeter.Wait()
	return errors.Join(err, greeted)
}

const (
	// votersTimeout is how long a cluster may take to have its voters, before it is said to
	// be ready all the same.
	votersTimeout = 10 * time.Second
	votersEvery   = 50 * time.Millisecond
)

// awaitVoters waits until enough brokers vote for the controller that one may die: before
// that, the death of the first one stops the cluster.
func awaitVoters(ctx context.Context, all []processes.Status) {
	want := min(len(all), config.Default().Cluster.Voters)
	if want%2 == 0 {
		want--
	}
	ctx, cancel := context.WithTimeout(ctx, votersTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addressesOf(all)...), kgo.ClientID("brokerd"))
	if err != nil {
		return // then it is not known
	}
	defer client.Close()
	tick := time.NewTicker(votersEvery)
	defer tick.Stop()
	for voters(ctx, client) < want {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// voters is how many brokers vote, as the one says that leads the quorum; 0: that is not
// known now.
func voters(ctx context.Context, client *kgo.Client) int {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic, partition := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
	topic.Topic, topic.Partitions = "__cluster_metadata", append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	for _, b := range client.SeedBrokers() {
		resp, err := b.Request(ctx, req)
		if err != nil {
			continue
		}
		if r, ok := resp.(*kmsg.DescribeQuorumResponse); ok && len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && r.Topics[0].Partitions[0].ErrorCode == 0 {
			return len(r.Topics[0].Partitions[0].CurrentVoters)
		}
	}
	return 0
}

func addressesOf(all []processes.Status) []string {
	var out []string
	for _, s := range all {
		out = append(out, s.Address)
	}
	return out
}

// arguments are what a broker is started with.
func (d *devCluster) arguments(n int) []string {
	out := []string{"dev", "serve"}
	for _, pair := range d.settings(n) {
		out = append(out, "--set", pair)
	}
	return out
}

// settings are a broker's own. The first one may create a cluster, until it has; then
// there is no other that could have one, so that it names none.
func (d *devCluster) settings(n int) []string {
	founds := n == 1 && !d.state.Founded
	var others []string
	if !founds {
		others = slices.Delete(slices.Clone(d.state.Endpoints), n-1, n)
	}
	section := map[string]any{"secret_file": d.secret}
	if d.transport != nil {
		section = maps.Clone(d.transport)
	}
	section["listen"] = d.state.Endpoints[n-1]
	transport, err := json.Marshal(section)
	if err != nil {
		panic(err) // of what was read from JSON
	}
	out := slices.Clone(d.set)
	if os.Getenv(rebalanceDelayVariable) == "" {
		out = append([]string{"group.initial.rebalance.delay.ms=0"}, out...) // as for one broker
	}
	for _, pair := range [][2]string{
		{"node.id", strconv.Itoa(n)},
		{"data", filepath.Join(d.data, fmt.Sprintf("broker-%d", n))},
		{"listeners", "PLAINTEXT://" + loopback(d.port, n)},
		{"advertised.listeners", ""},
		{"admin.listen", loopback(d.adminPort, n)},
		{"cluster.bootstrap", strconv.FormatBool(founds)},
		{"cluster.seeds", strings.Join(others, ",")},
		{"transport.plugin", config.Default().Transport.Plugin},
		{"transport.config", string(transport)},
	} {
		out = append(out, pair[0]+"="+pair[1])
	}
	return out
}

// loopback is the address of a broker, where the first has this port.
func loopback(port, n int) string {
	if port != 0 {
		port += n - 1
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// newDevServe is how `brokerd dev` starts one of several brokers: this same program, as a
// process of its own.
func newDevServe(c *console) *cobra.Command {
	var opts runOptions
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Be one of several brokers; `brokerd dev` starts this, nobody else",
		Example: "  brokerd dev serve --set node.id=2",
		Args:    noArgs,
		Hidden:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.ready = func(b *broker.Broker, _ config.Loaded) error {
				return json.NewEncoder(c.out).Encode(processes.Told{Address: b.Addresses()[0], Admin: b.AdminAddress()})
			}
			ctx, end := context.WithCancel(cmd.Context())
			defer end()
			go func() { // for as long as this process lives
				_, _ = c.in.Read(make([]byte, 1)) // nothing is written: it ends with whoever started this
				end()
			}()
			return runBroker(ctx, c, opts)
		},
	}
	cmd.Flags().StringArrayVar(&opts.set, "set", nil, "a setting, as name=value (repeatable)")
	return cmd
}

// newDevAsk is a command that has something done to one of the brokers of `brokerd dev`.
func newDevAsk(c *console, do, short, long string) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:     do + " N",
		Short:   short,
		Long:    long,
		Example: fmt.Sprintf("  brokerd dev %s 2", do),
		Args:    oneArg("a broker by its number"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(strings.TrimPrefix(args[0], "broker-"))
			if err != nil || n < 1 {
				return usagef(cmd, "%q is no broker's number", args[0])
			}
			all, err := askDev(cmd, data, processes.Request{Do: do, Broker: n})
			if err != nil {
				return err
			}
			return writeDevStatus(c, all[n-1:n], "table")
		},
	}
	devDataFlag(cmd, &data)
	return cmd
}

func newDevStatus(c *console) *cobra.Command {
	var data, format string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the brokers that `brokerd dev` runs",
		Example: "  brokerd dev status\n  brokerd dev status --data /tmp/brokerd -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(cmd, format); err != nil {
				return err
			}
			all, err := askDev(cmd, data, processes.Request{Do: processes.Show})
			if err != nil {
				return err
			}
			return writeDevStatus(c, all, format)
		},
	}
	devDataFlag(cmd, &data)
	outputFlag(cmd, &format)
	return cmd
}

func devDataFlag(cmd *cobra.Command, data *string) {
	cmd.Flags().StringVar(data, "data", config.Default().Data, "directory of the brokers, as `brokerd dev` was given it")
}

func askDev(cmd *cobra.Command, data string, r processes.Request) ([]processes.Status, error) {
	data = devData(cmd, data)
	all, err := processes.Ask(cmd.Context(), data, r)
	if errors.Is(err, processes.ErrNone) {
		return nil, &notFoundError{fmt.Sprintf("no `brokerd dev --brokers N` runs on %s; name its directory with --data", data)}
	}
	if err == nil && len(all) < r.Broker {
		err = errors.New("who runs the brokers is of another release")
	}
	return all, err
}

func writeDevStatus(c *console, all []processes.Status, format string) error {
	if format == "json" {
		return writeJSON(c.out, all)
	}
	var rows [][]string
	for _, s := range all {
		pid := ""
		if s.PID != 0 {
			pid = strconv.Itoa(s.PID)
		}
		rows = append(rows, []string{strconv.Itoa(s.Broker), s.State, pid, strconv.Itoa(s.Starts), s.Address, s.Admin, s.Error})
	}
	return writeTable(c.out, []string{"broker", "state", "pid", "starts", "clients", "metrics", "error"}, rows)
}

// clusterGreeting is what a newcomer reads when several brokers are ready.
func clusterGreeting(all []processes.Status, data string) string {
	me, at := commandName(), ""
	if data != config.Default().Data {
		at = " --data " + data
	}
	b := strings.Join(addressesOf(all), ",")
	return fmt.Sprintf(`
%[1]d brokers are ready at %[2]s, with their data in %[3]s. Try them from another terminal:

  echo hello | %[4]s produce -t greetings -b %[2]s
  %[4]s consume -t greetings --from-beginning -b %[2]s

and see what the death of one costs:

  %[4]s dev status%[5]s
  %[4]s dev kill 2%[5]s
  %[4]s dev restart 2%[5]s

Ctrl-C stops them.

`, len(all), b, data, me, at)
}
