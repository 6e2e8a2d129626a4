package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/brokerd/brokerd/test/ports"
)

// NATS makes one nats-server with JetStream, whose files are below dir; settings are of
// its jetstream section, as lines, on top of its defaults. Nothing is started.
func NATS(ctx context.Context, dir string, settings ...string) (*Server, error) {
	install := exec.CommandContext(ctx, "bash", "scripts/tools", "nats")
	install.Stderr = os.Stderr
	program, err := install.Output()
	if err != nil {
		return nil, fmt.Errorf("install nats-server (run this from the top of the tree): %w", err)
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
	s.argvs = [][]string{{strings.TrimSpace(string(program)), "-c", config}}
	return s, nil
}

func natsConfig(addr, data string, settings []string) []byte {
	lines := append([]string{fmt.Sprintf("store_dir: %q", data)}, settings...)
	return fmt.Appendf(nil, "listen: %q\njetstream {\n  %s\n}\n", addr, strings.Join(lines, "\n  "))
}
