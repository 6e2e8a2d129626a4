package peer

import (
	"net"
	"testing"
	"time"
)

// What a process has started ends with it.
func TestKillEndsAll(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // somebody answers at its address
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newServer("tree", t.TempDir(), []int{l.Addr().(*net.TCPAddr).Port})
	shell := []string{"sh", "-c", "sleep 1000 & sleep 1000 & wait"}
	s.argvs = [][]string{shell, shell}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	var pids []int
	for begun := time.Now(); len(pids) < 6; {
		if pids, err = s.Pids(); err != nil || time.Since(begun) > startTimeout {
			t.Fatalf("%v run: %v", pids, err)
		}
	}
	var all, use Usage
	for begun := time.Now(); use.RSS == 0 || use.RSS >= all.RSS; { // they grow yet
		s.starter = false
		if all, err = s.Usage(); err != nil {
			t.Fatal(err)
		}
		s.starter = true
		if use, err = s.Usage(); err != nil || time.Since(begun) > startTimeout {
			t.Fatalf("without the process that starts brokers: %+v, %v; with it %+v", use, err, all)
		}
	}
	s.Kill()
	if anyLives(pids) || s.Running() {
		t.Errorf("of %v some live, or it says that it runs (%v)", pids, s.Running())
	}
}
