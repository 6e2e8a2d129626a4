package peer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/brokerd/brokerd/test/ports"
	"github.com/brokerd/brokerd/test/rig"
)

// NATS makes one nats-server with JetStream, whose files are below dir; settings are of
// its jetstream section, as lines, on top of its defaults. Nothing is started.
func NATS(ctx context.Context, dir string, settings ...string) (*Server, error) {
	program, err := rig.Tool(ctx, "nats")
	if err != nil {
		return nil, fmt.Errorf("install nats-server: %w", err)
	}
	free, err := ports.Free(1)
	if err != nil {
		return nil, err
	}
	s := newServer("nats", dir, free)
	config := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(config, natsConfig(s.Addr, s.Data(), settings), 0o644); err != nil {
		return nil, fmt.Errorf("configure NATS: %w", err)
	}
	s.argvs = [][]string{{program, "-c", config}}
	return s, nil
}

func natsConfig(addr, data string, settings []string) []byte {
	lines := append([]string{fmt.Sprintf("store_dir: %q", data)}, settings...)
	return fmt.Appendf(nil, "listen: %q\njetstream {\n  %s\n}\n", addr, strings.Join(lines, "\n  "))
}
