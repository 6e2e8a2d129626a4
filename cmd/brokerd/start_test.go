package main

import (
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// devOnce runs `brokerd dev` until it is ready, and ends it.
func devOnce(t *testing.T, dir string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, errs := newScreen(), newScreen()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, &console{in: strings.NewReader(""), out: out, err: errs}, append([]string{"dev", "--data", dir, "--port", "0"}, args...))
	}()
	out.waitFor(t, `brokerd is ready at`)
	cancel()
	if code := <-ended; code != exitOK || !strings.Contains(errs.String(), "msg=stopped") {
		t.Fatalf("brokerd dev: code %d, and is it stopped?\n%s", code, errs)
	}
}

// filesOf are the names of all files below a directory.
func filesOf(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

// A lost quorum.db is no reason to create a cluster over the stores of another.
func TestLostMetadataCreatesNoCluster(t *testing.T) {
	dir := t.TempDir()
	devOnce(t, dir)
	database, away := filepath.Join(dir, "quorum", "quorum.db"), filepath.Join(t.TempDir(), "quorum.db")
	if err := os.Rename(database, away); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	for range 2 {
		code, _, errs := call(t, "", "dev", "--data", dir, "--port", "0")
		for _, want := range []string{database, "no cluster was created", "belongs to node 1 of cluster", "put a copy of quorum.db back", "To start empty"} {
			if code != exitFailed || !strings.Contains(errs, want) {
				t.Errorf("code %d, no %q in\n%s", code, want, errs)
			}
		}
		if n := strings.Count(errs, "plugin did not start"); n > 1 {
			t.Errorf("the store was asked %d times", n)
		}
		if strings.Contains(errs, "msg=\"created a cluster\"") {
			t.Errorf("a cluster was created:\n%s", errs)
		}
	}
	if after := filesOf(t, dir); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
	if err := os.Rename(away, database); err != nil {
		t.Fatal(err)
	}
	devOnce(t, dir)
}

// A store that was removed under the metadata is told of at the start.
func TestLostStoreIsTold(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	out := newScreen()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, &console{in: strings.NewReader(""), out: out, err: newScreen()}, []string{"dev", "--data", dir, "--port", "0"})
	}()
	address := out.waitFor(t, `brokerd is ready at (\S+),`)[1]
	if code, _, errs := call(t, "", "topic", "create", "orders", "-p", "3", "-b", address); code != exitOK {
		t.Fatal(errs)
	}
	cancel()
	<-ended
	if err := os.RemoveAll(filepath.Join(dir, "main")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	out, errs := newScreen(), newScreen()
	go func() {
		ended <- run(ctx, &console{in: strings.NewReader(""), out: out, err: errs}, []string{"dev", "--data", dir, "--port", "0"})
	}()
	out.waitFor(t, `brokerd is ready at`)
	cancel()
	<-ended
	if !strings.Contains(errs.String(), "3 replicas of this broker are in directory") {
		t.Errorf("the log does not say that the store is another:\n%s", errs)
	}
}

// What was wrong with a first start can be put right, and names what to change.
func TestFirstStartMistakes(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"--admin-port " + port, exitInUse, "--admin-port (dev) or `admin.listen`"},
		{"--set storage.stores={main:{plugin:nosuch}}", exitUsage, "there is no plugin nosuch"},
		{"--set storage.stores={main:{plugin:storage-file,config:{pth:/p}}}", exitUsage, "pth"},
		{"--set data=/proc/zz", exitUsage, "data: /proc/zz cannot be made or used: /proc "},
		{"--set cluster.bootstrap=false", exitUsage, "cluster.bootstrap"},
		{"--set cluster.seeds=127.0.0.1:1", exitUsage, "transport.config does not say where this one listens"},
		{"--set transport.config={listen:\"127.0.0.1:0\"}", exitUsage, "nothing says how peers prove who they are"},
		{"--set transport.config={listen:\"127.0.0.1:" + port + "\",security:plaintext} --set cluster.seeds=127.0.0.1:1", exitInUse, "choose a port in `transport.config`"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			dir := t.TempDir()
			code, _, errs := call(t, "", append([]string{"dev", "--data", dir, "--port", "0"}, strings.Fields(tc.args)...)...)
			if code != tc.code || !strings.Contains(errs, tc.want) {
				t.Errorf("code %d, want %d, %q\n%s", code, tc.code, tc.want, errs)
			}
			if _, err := os.Stat(filepath.Join(dir, "quorum", "quorum.db")); err == nil {
				t.Error("a cluster was created")
			}
			devOnce(t, dir)
			if code, _, errs := call(t, "", "dev", "--data", dir, "--port", "0", "--set", "node.id=2"); code != exitUsage || !strings.Contains(errs, "set node.id to 1") {
				t.Errorf("another node.id: code %d\n%s", code, errs)
			}
		})
	}
	if got := startError(&fs.PathError{Op: "mkdir", Path: "/ro", Err: syscall.EROFS}).Error(); !strings.Contains(got, "mounted read-only") {
		t.Errorf("a read-only file system: %s", got)
	}
}

// Records that the store cannot read end a consumer with a sentence, and the
// status tells of them.
func TestConsumeDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	out := newScreen()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, &console{in: strings.NewReader(""), out: out, err: newScreen()}, []string{"dev", "--data", dir, "--port", "0"})
	}()
	address := out.waitFor(t, `brokerd is ready at (\S+),`)[1]
	for _, line := range []string{"first", "second"} {
		if code, _, errs := call(t, line, "produce", "-t", "orders", "-b", address); code != exitOK {
			t.Fatal(errs)
		}
	}
	cancel()
	<-ended
	segments, err := filepath.Glob(filepath.Join(dir, "main", "orders-0*", "*.log"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	content, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	content[strings.Index(string(content), "second")] ^= 1
	if err := os.WriteFile(segments[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	address, screen := dev(t, dir)
	code, printed, errs := call(t, "", "consume", "-t", "orders", "--from-beginning", "-e", "-b", address)
	if code != exitFailed || printed != "first\n" || !strings.Contains(errs, "consume orders, partition 0: the stored records at offset 1 are damaged") {
		t.Errorf("code %d, %q\n%s", code, printed, errs)
	}
	admin := screen.waitFor(t, `are at (http://\S+) `)[1]
	for path, want := range map[string]string{
		"/v1/status": "stored records of orders, partition 0, are damaged at offset 1",
		"/metrics":   `brokerd_replica_damaged_reads_total{topic="orders"}`,
	} {
		resp, err := http.Get(admin + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s, %v: no %q in\n%s", path, err, want, body)
		}
	}
}
