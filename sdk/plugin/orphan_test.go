package plugin

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestEndOfStdinEndsThePlugin is FR-77 where the kernel does not kill orphans:
// the plugin is started without childAttributes, and only loses its pipe.
func TestEndOfStdinEndsThePlugin(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "serve-memstore")
	cmd.Env = append(os.Environ(), cookieKey+"="+cookieValue, stdinWatchKey+"=1", "PLUGIN_PROTOCOL_VERSIONS=1",
		"PLUGIN_UNIX_SOCKET_DIR="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil { // the handshake: it serves
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("it ended while the pipe was open: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	_ = stdin.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(200 * time.Millisecond):
		_ = cmd.Process.Kill()
		<-ended
		t.Error("it is there 200 ms after the end of its standard input")
	}
}
