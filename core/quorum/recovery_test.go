package quorum

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

func encoded(img *image.Image) []byte {
	return image.AppendBatch(nil, slices.Collect(img.Records()))
}

// copyDB is the directory as a machine that stops now leaves it.
func copyDB(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, databaseName))
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := os.WriteFile(filepath.Join(to, databaseName), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// history runs commands, and gives the directory after each one together with
// the image that was acknowledged.
func history(t *testing.T, cfg Config, commands int) (dirs []string, acknowledged [][]byte) {
	t.Helper()
	n := open(t, cfg)
	stop := start(t, n)
	defer stop()
	register(t, n)
	for i := range commands {
		switch i % 4 {
		case 0, 1:
			createTopic(t, n, fmt.Sprint("t", i))
		case 2:
			if rs, err := n.DeleteTopics(soon(t), []model.TopicRef{{Name: fmt.Sprint("t", i-2)}}); err != nil || rs[0].Err != nil {
				t.Fatal(err, rs)
			}
		case 3:
			v := fmt.Sprint(i)
			change := model.ConfigChange{Resource: model.Resource{Type: model.ResourceTopic, Name: fmt.Sprint("t", i-2)}, Ops: []model.ConfigOp{{Key: "retention.ms", Value: &v}}}
			if errs, err := n.AlterConfigs(soon(t), []model.ConfigChange{change}, false); err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
		}
		dirs = append(dirs, copyDB(t, cfg.Dir))
		acknowledged = append(acknowledged, encoded(n.Image()))
	}
	return dirs, acknowledged
}

// A machine that stops after any acknowledgement comes back with exactly what
// was acknowledged, across snapshots too.
func TestStopAfterEveryAcknowledgement(t *testing.T) {
	cfg := testConfig(t)
	cfg.SnapshotEntries = 5
	dirs, want := history(t, cfg, 16)
	for i, dir := range dirs {
		cfg.Dir, cfg.Bootstrap = dir, false
		n := open(t, cfg)
		stop := start(t, n)
		// An empty change goes through the whole log before it is answered.
		if _, err := n.CreateTopics(soon(t), nil, false); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encoded(n.Image()), want[i]) {
			t.Errorf("after command %d the image came back as another", i)
		}
		createTopic(t, n, "later")
		stop()
	}
}

func TestSnapshotsCompactTheLog(t *testing.T) {
	cfg := testConfig(t)
	cfg.SnapshotEntries = 10
	n := open(t, cfg)
	stop := start(t, n)
	register(t, n)
	for range 55 {
		if _, err := n.AllocateProducerIDs(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	before := encoded(n.Image())
	stop()
	n = open(t, cfg)
	defer n.Close()
	first, err := n.store.mem.FirstIndex()
	last, err2 := n.store.mem.LastIndex()
	if err != nil || err2 != nil || last < 55 || last-first+1 >= 10 {
		t.Errorf("log from %d to %d: %v, %v", first, last, err, err2)
	}
	if !bytes.Equal(encoded(n.Image()), before) {
		t.Error("the image came back as another")
	}
}

// Each refusal is one sentence that says what to do, and leaves the directory as
// it was.
func TestRefusals(t *testing.T) {
	empty := testConfig(t)
	empty.Bootstrap = false
	made := testConfig(t)
	if err := open(t, made).Close(); err != nil {
		t.Fatal(err)
	}
	otherNode, otherCluster := made, made
	otherNode.NodeID = 2
	otherCluster.ClusterID = "another"
	busy := testConfig(t)
	first := open(t, busy)
	defer first.Close()

	tests := []struct {
		name string
		cfg  Config
		want error
		says string
	}{
		{"nothing there", empty, ErrNoCluster, "cluster.bootstrap"},
		{"another node's", otherNode, ErrForeign, "set node.id to 1"},
		{"another cluster's", otherCluster, ErrForeign, "cluster another"},
		{"in use", busy, ErrInUse, "another process uses"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			_, err := Open(tt.cfg, Deps{})
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Open = %v; want %v that says %q", err, tt.want, tt.says)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	if entries, err := os.ReadDir(empty.Dir); err != nil || len(entries) != 0 {
		t.Errorf("a refused start left %v, %v", entries, err)
	}
	if err := open(t, made).Close(); err != nil {
		t.Error(err)
	}
}

func TestBootstrapAgainChangesNothing(t *testing.T) {
	cfg := testConfig(t)
	cfg.ClusterID = "chosen"
	n := open(t, cfg)
	id := n.Identity()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, cfg)
	defer again.Close()
	if again.Identity() != id || id.ClusterID != "chosen" {
		t.Errorf("identity %+v became %+v", id, again.Identity())
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != databaseName {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
}

// A creation that was cut short leaves a directory, which the next start removes;
// nothing else goes.
func TestLeftoversOfACreationAreRemoved(t *testing.T) {
	cfg := testConfig(t)
	for _, name := range []string{databaseName + ".new-123", "notes.new-1"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(cfg.Dir, databaseName+".new-123", databaseName), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := open(t, cfg)
	defer n.Close()
	var names []string
	entries, err := os.ReadDir(cfg.Dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || !slices.Equal(names, []string{"notes.new-1", databaseName}) {
		t.Errorf("in the directory: %v, %v", names, err)
	}
}

func TestTargetsStayAndAreToldOf(t *testing.T) {
	cfg := testConfig(t)
	if err := open(t, cfg).Close(); err != nil {
		t.Fatal(err)
	}
	for target, warned := range map[int16]bool{3: false, 2: true} {
		cfg.ReplicationFactorTarget = target
		var log bytes.Buffer
		n, err := Open(cfg, Deps{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Image().Cluster.ReplicationFactorTarget; got != 3 || strings.Contains(log.String(), "no effect") != warned {
			t.Errorf("configured %d: target %d, log %q", target, got, log.String())
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The directory of the first format opens for ever: six topics, with a snapshot
// in their midst.
func TestGoldenDatabase(t *testing.T) {
	packed, err := os.Open(filepath.Join("testdata", "quorum-v1.db.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	db, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t)
	if err := os.WriteFile(filepath.Join(cfg.Dir, databaseName), db, 0o600); err != nil {
		t.Fatal(err)
	}
	n := open(t, cfg)
	start(t, n)
	createTopic(t, n, "g")
	var names []string
	for topic := range n.Image().Topics() {
		names = append(names, topic.Name)
	}
	b, ok := n.Image().Broker(1)
	if strings.Join(names, "") != "abcdefg" || !ok || b.Rack != "a" || b.Listeners["PLAINTEXT"].Port != 9092 || n.Identity().ClusterID != "golden-cluster-0000001" {
		t.Errorf("topics %v, broker %+v, cluster %s", names, b, n.Identity().ClusterID)
	}
}

// A disk that fails ends Run, and nobody is told of a success.
func TestDiskFails(t *testing.T) {
	n := open(t, testConfig(t))
	n.OnImage(func(img *image.Image) {
		if b, ok := img.Broker(1); ok && !b.Fenced {
			if err := onDisk(n).db.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	done := make(chan error, 1)
	go func() { done <- n.Run(t.Context()) }()
	register(t, n)
	rs, err := n.CreateTopics(soon(t), []model.NewTopic{{Name: "t", Partitions: 1, ReplicationFactor: 1}}, false)
	if !errors.Is(err, model.ErrNotController) {
		t.Errorf("after the disk failed: %+v, %v", rs, err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "save 1 entries") {
		t.Errorf("Run = %v", err)
	}
	if _, ok := n.Image().TopicByName("t"); ok {
		t.Error("the image has what was never saved")
	}
}

// Two nodes of one ID are two voters: a wiped node cannot vote for its earlier
// self.
func TestRaftIdentityIsNotTheNodeID(t *testing.T) {
	a, b := open(t, testConfig(t)), open(t, testConfig(t))
	defer a.Close()
	defer b.Close()
	if a.raftID == b.raftID || a.identity.ClusterID == b.identity.ClusterID {
		t.Errorf("raft IDs %d and %d, clusters %s and %s", a.raftID, b.raftID, a.identity.ClusterID, b.identity.ClusterID)
	}
}

// FR-42: a database that is cut, emptied or damaged refuses to open, whatever
// its state, and is never taken for an empty one.
func TestDamagedDatabaseIsRefused(t *testing.T) {
	cfg := testConfig(t)
	cfg.SnapshotEntries = 10
	dirs, want := history(t, cfg, 12)
	whole, err := os.ReadFile(filepath.Join(dirs[len(dirs)-1], databaseName))
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{
		"empty":   {},
		"garbage": bytes.Repeat([]byte("garbage "), 4096),
		"zeros":   make([]byte, len(whole)),
	}
	for _, n := range []int{1, 100, 4096, 8192, 12288, 16384, len(whole) / 2} {
		damaged[fmt.Sprintf("first %d bytes", n)] = whole[:n]
	}
	for at := 4096; at < len(whole); at += 1021 {
		b := bytes.Clone(whole)
		b[at] ^= 0x55
		damaged[fmt.Sprintf("byte %d flipped", at)] = b
	}
	cut, flipped := 0, 0
	for name, content := range damaged {
		cfg.Dir, cfg.Bootstrap = t.TempDir(), true
		if err := os.WriteFile(filepath.Join(cfg.Dir, databaseName), content, 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := Open(cfg, Deps{})
		if err != nil {
			if strings.Contains(name, "flipped") {
				flipped++
			} else {
				cut++
			}
			if !errors.Is(err, ErrDamaged) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		// Damage to what is not in use may pass, if what is in use is whole.
		stop := start(t, n)
		if _, err := n.CreateTopics(soon(t), nil, false); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(want, func(w []byte) bool { return bytes.Equal(w, encoded(n.Image())) }) {
			t.Errorf("%s: opened with other metadata", name)
		}
		stop()
	}
	if cut < 9 || flipped == 0 {
		t.Errorf("refused %d cut and %d flipped of %d", cut, flipped, len(damaged))
	}
}
