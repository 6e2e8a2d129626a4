package storagefile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// killedStore is set in the process that TestKilledInMidGrant kills.
const killedStore = "STORAGE_FILE_KILLED_STORE"

// killedConfig has small segments, so that they are dropped and used again all the
// time.
func killedConfig(path string) storage.Config {
	cfg := config(path)
	cfg.Settings = fmt.Appendf(nil, `{"path":%q,"reserve":"4KiB","segment_bytes":"64KiB","boot_id":"same"}`, path)
	return cfg
}

var killedLog = storage.OpenSpec{ID: storage.LogID{Partition: 1}, Label: "killed", Create: true}

// killedBatch is the batch at an offset: all have one size, so that each lies where
// another lay before.
func killedBatch(offset int64) []byte {
	payload := make([]byte, 700)
	for i := range payload {
		payload[i] = byte(offset*31 + int64(i)*7)
	}
	return recordbatch.Build(nil, recordbatch.Header{
		Info: recordbatch.Info{
			BaseOffset: offset, LastOffset: offset, Records: 1, ProducerID: -1, BaseSequence: -1,
			BaseTimestamp: offset, MaxTimestamp: offset,
		},
		Payload: payload,
	})
}

// TestKilled is the process that is killed: it writes, says what it may acknowledge,
// and drops what is old.
func TestKilled(t *testing.T) {
	path := os.Getenv(killedStore)
	if path == "" {
		t.Skip("runs as a process of TestKilledInMidGrant")
	}
	p := &provider{fs: vfs.OS{}, now: time.Now}
	store, _, err := p.Open(t.Context(), killedConfig(path))
	if err != nil {
		t.Fatal(err)
	}
	res := store.Open(t.Context(), []storage.OpenSpec{killedLog})[0]
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	for leo := res.LEO; ; {
		if leo, err = writeSome(t.Context(), store, res.Handle, leo, os.Stdout); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Retain(t.Context(), res.Handle, storage.RetainPolicy{Ceiling: leo, Now: time.Now(), MaxBytes: 100 << 10}); err != nil {
			t.Fatal(err)
		}
	}
}

// writeSome appends a batch, and then writes more under a grant, several with one
// call, of which it tells later.
func writeSome(ctx context.Context, store storage.Store, h storage.Handle, leo int64, says io.Writer) (int64, error) {
	answers := make(chan error, 1)
	tell := func(req storage.AppendRequest) error {
		store.Append(ctx, req, func(_ storage.AppendResult, err error) { answers <- err })
		return <-answers
	}
	req, err := killedRequest(h, leo, 1)
	if err != nil {
		return leo, err
	}
	if err := tell(req); err != nil {
		return leo, err
	}
	leo++
	_, _ = fmt.Fprintln(says, "acked", leo) // who reads it may be gone
	g, err := store.Files().Grant(ctx, h, 0, storage.SurvivesProcess)
	if errors.Is(err, storage.ErrRetry) {
		return leo, nil
	}
	if err != nil {
		return leo, err
	}
	defer func() { _ = g.File.Close() }() // the store has it too
	for n := 1; n <= 20; n++ {
		req, err := killedRequest(h, leo, n)
		if err != nil {
			return leo, err
		}
		written := bytes.Join(req.Data, nil)
		if g.Pos+int64(len(written)) > g.Limit {
			return leo, nil
		}
		if _, err := g.File.WriteAt(written, g.Pos); err != nil {
			return leo, err
		}
		_, _ = fmt.Fprintln(says, "acked", leo+int64(n))
		req.Data, req.Granted, req.Pos = nil, g.ID, g.Pos
		if err := tell(req); err != nil {
			return leo, err
		}
		leo, g.Pos = leo+int64(n), g.Pos+int64(len(written))
	}
	return leo, nil
}

func killedRequest(h storage.Handle, leo int64, n int) (storage.AppendRequest, error) {
	req := storage.AppendRequest{Handle: h, BaseOffset: leo}
	for i := range int64(n) {
		b := killedBatch(leo + i)
		info, err := recordbatch.Parse(b)
		if err != nil {
			return req, err
		}
		req.Batches, req.Data = append(req.Batches, info), append(req.Data, b)
	}
	return req, nil
}

// A process that writes under grants into segments that held other batches before
// is killed again and again: all that it had acknowledged is there, byte for byte,
// and nothing else.
func TestKilledInMidGrant(t *testing.T) {
	path := memoryDir(t) + "/store"
	acked := int64(0)
	for round := range 15 {
		acked = max(acked, runAndKill(t, path, 40+round*37%200))
		p := &provider{fs: vfs.OS{}, now: time.Now}
		store, _, err := p.Open(t.Context(), killedConfig(path))
		if err != nil {
			t.Fatal(err)
		}
		res := store.Open(t.Context(), []storage.OpenSpec{killedLog})[0]
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		if res.LEO < acked || res.Verdict != storage.VerdictIntact {
			t.Fatalf("round %d: the log ends at %d, verdict %d (cut %q); %d was acknowledged", round, res.LEO, res.Verdict, res.Cut, acked)
		}
		for at := res.LogStart; at < res.LEO; at++ {
			got, err := store.Read(t.Context(), storage.ReadRequest{Handle: res.Handle, Offset: at, UpTo: at + 1, AtLeastOne: true})
			if err != nil || !bytes.Equal(got.Data, killedBatch(at)) {
				t.Fatalf("round %d: the batch at %d is another one, %v", round, at, err)
			}
		}
		// The next process finds the log as the kill has left it, or as an orderly end.
		if round%2 == 0 {
			if err := store.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := writeSome(t.Context(), store, res.Handle, res.LEO, io.Discard); err != nil {
			t.Fatal(err)
		}
		if err := store.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// runAndKill runs TestKilled until it has said so many lines, and returns the
// greatest offset that it has acknowledged.
func runAndKill(t *testing.T, path string, linesMax int) (acked int64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKilled$")
	cmd.Env = append(os.Environ(), killedStore+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	for n := 0; said.Scan(); n++ {
		if n == linesMax {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
		offset, found := bytes.CutPrefix(said.Bytes(), []byte("acked "))
		if !found {
			t.Log(said.Text())
			continue
		}
		upTo, err := strconv.ParseInt(string(offset), 10, 64)
		if err != nil {
			t.Error(err)
		}
		acked = max(acked, upTo) // the kill may have cut the last line short
	}
	_ = cmd.Wait() // it was killed
	return acked
}
