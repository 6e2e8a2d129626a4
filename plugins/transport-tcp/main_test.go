package transporttcp

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/transport"
)

// The roles that this test binary plays when it is executed by a test.
const (
	roleServe  = "serve"  // the plugin
	roleBroker = "broker" // a broker with the plugin, by the carrier of the next argument
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		role := map[string]func() error{roleServe: Serve, roleBroker: beBroker}[os.Args[1]]
		if role != nil {
			if err := role(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	// The race detector would keep every process for a second after its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// beBroker launches the plugin, says where it can be dialled, and sends back what comes.
func beBroker() error {
	carrier, known := plugin.CarrierNamed(os.Args[2])
	if !known {
		return fmt.Errorf("there is no carrier %s", os.Args[2])
	}
	ctx := context.Background()
	process, err := plugin.Launch(ctx, plugin.LaunchConfig{Args: []string{roleServe}, Carrier: carrier})
	if err != nil {
		return err
	}
	settings, err := section(map[string]any{"secret": testSecret})
	if err != nil {
		return err
	}
	session, err := process.OpenTransport(ctx, transport.Config{Settings: settings, Identity: identity(1)})
	if err != nil {
		return err
	}
	node := session.Transport(nil)
	fmt.Println(node.Endpoint())
	for {
		link, err := node.Accept(ctx)
		if err != nil {
			return err
		}
		go func() {
			for {
				message, err := link.Receive(ctx, room)
				if err != nil || link.Send(ctx, message) != nil {
					return
				}
			}
		}()
	}
}

// room gives memory for any message.
func room(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil }
