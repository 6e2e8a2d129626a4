package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brokerd/brokerd/cmd/brokerd/internal/processes"
	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/config"
)

func newDev(c *console) *cobra.Command {
	var (
		opts      runOptions
		data      string
		port      int
		flush     string
		adminPort int
		brokers   int
	)
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a broker on this machine, or several, to try things out",
		Long: `Runs one broker that listens on this machine only and keeps everything below one
directory. It tells when it is ready, and what to try. Ctrl-C stops it; started
again, it goes on where it was. To begin anew, remove the directory.

With --brokers it runs several, each a process of its own, that are one cluster.
From another terminal, and with the same --data, the commands below kill, pause and
restart them.`,
		Example: `  brokerd dev
  brokerd dev --brokers 3
  brokerd dev --port 19092 --data /tmp/brokerd
  brokerd dev --flush interval --set log.level=debug`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := cmd.Flags()
			if brokers < 1 && flags.Changed("brokers") || brokers > processes.Max {
				return usagef(cmd, "--brokers %d: there can be 1 to %d", brokers, processes.Max)
			}
			at := devData(cmd, data)
			state, count, err := devBrokers(at, brokers)
			if err != nil {
				return err
			}
			if count > 1 {
				set := opts.set
				if flags.Changed("flush") {
					set = append(set, "flush="+flush)
				}
				d := devCluster{data: at, port: port, adminPort: adminPort, set: set, state: state}
				return d.run(cmd.Context(), c, count)
			}
			if flags.Changed("data") {
				opts.override("--data", "data", data)
			}
			if flags.Changed("flush") {
				opts.override("--flush", "flush", flush)
			}
			if flags.Changed("admin-port") {
				opts.override("--admin-port", "admin.listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(adminPort)))
			}
			if flags.Changed("port") {
				opts.override("--port", "listeners", devListeners(os.Getenv("BROKERD_LISTENERS"), port))
			}
			if os.Getenv(rebalanceDelayVariable) == "" {
				opts.override("dev", "group.initial.rebalance.delay.ms", "0") // nobody who tries things out wants to wait
			}
			opts.ready = func(b *broker.Broker, loaded config.Loaded) error {
				_, err := fmt.Fprint(c.out, greeting(b.Addresses()[0], loaded.Data, b.AdminAddress()))
				return err
			}
			return runBroker(cmd.Context(), c, opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", config.Default().Data, "directory of all that the broker keeps")
	f.IntVar(&port, "port", 9092, "port of the Kafka protocol; 0: one that is free")
	f.StringVar(&flush, "flush", string(config.FlushReplicated), "what an acknowledgement waits for: replicated, always or interval")
	f.IntVar(&adminPort, "admin-port", 0, "port of metrics, health and status; 0: one that is free")
	f.StringArrayVar(&opts.set, "set", nil, "any other setting, as name=value (repeatable)")
	f.IntVar(&brokers, "brokers", 0, "how many brokers, each a process of its own, with ports from --port on; 0: as many as there are in the directory, or one")
	cmd.AddCommand(newDevServe(c), newDevStatus(c),
		newDevAsk(c, processes.Kill, "Kill one of several brokers", "Ends the process of a broker at once, as kill -9 does."),
		newDevAsk(c, processes.Pause, "Pause one of several brokers", "Stops the process of a broker where it is (SIGSTOP), as a machine that hangs does."),
		newDevAsk(c, processes.Resume, "Let a paused broker go on", "Lets the process of a paused broker go on (SIGCONT)."),
		newDevAsk(c, processes.Restart, "Start one of several brokers again", "Stops a broker as SIGTERM does, if it runs, and starts it again. It returns when the\nbroker is ready."))
	return cmd
}

// rebalanceDelayVariable sets group.initial.rebalance.delay.ms, also for dev.
const rebalanceDelayVariable = "BROKERD_GROUP_INITIAL_REBALANCE_DELAY_MS"

// devListeners puts a port into the listeners that the environment names, or
// into one on the loopback address.
func devListeners(environment string, port int) string {
	if environment == "" {
		return fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", port)
	}
	first, rest, more := strings.Cut(environment, ",")
	if i := strings.LastIndexByte(first, ':'); i >= 0 {
		first = first[:i+1] + strconv.Itoa(port)
	}
	if more {
		return first + "," + rest
	}
	return first
}

// commandName is how a person calls this program again.
func commandName() string {
	path, err := os.Executable()
	if err == nil && strings.Contains(path, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/brokerd"
	}
	return os.Args[0]
}

// greeting is what a newcomer reads when the broker is ready.
func greeting(address, data, admin string) string {
	me := commandName()
	b := ""
	if address != bootstrapDefault {
		b = " -b " + address
	}
	if admin != "" {
		admin = fmt.Sprintf("Metrics, health and status are at http://%s (/metrics, /readyz, /v1/status).\n", admin)
	}
	return fmt.Sprintf(`
brokerd is ready at %[1]s, with its data in %[2]s. Try it from another terminal:

  echo hello | %[3]s produce -t greetings%[4]s
  %[3]s consume -t greetings --from-beginning%[4]s

or with any Kafka client:

  echo hello | kcat -b %[1]s -P -t greetings
  kcat -b %[1]s -C -t greetings -e

%[5]sThis is one broker: what it keeps is not replicated. Ctrl-C stops it.

`, address, data, me, b, admin)
}
