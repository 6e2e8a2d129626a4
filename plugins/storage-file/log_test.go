package storagefile

import (
	"bytes"
	"log/slog"
	"regexp"
	"sync"
	"testing"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

// lines is a log in memory, as a broker would print it.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// launchLogged starts the program on a store, with its log going to a broker's.
func launchLogged(t *testing.T, program string, cfg storage.Config) (*plugin.Process, *plugin.Store, *lines) {
	t.Helper()
	said := &lines{}
	logger := slog.New(slog.NewTextHandler(said, nil)).With("plugin", "storage-file")
	p, err := plugin.Launch(t.Context(), plugin.LaunchConfig{Path: program, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	s, _, err := p.Store(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Abandon)
	return p, s, said
}

// record is a batch of one record.
func record(t *testing.T, offset int64, fill byte) ([]byte, storage.BatchInfo) {
	t.Helper()
	data := recordbatch.Build(nil, recordbatch.Header{
		Info:    recordbatch.Info{BaseOffset: offset, LastOffset: offset, Records: 1, ProducerID: -1, BaseSequence: -1},
		Payload: bytes.Repeat([]byte{fill}, 100),
	})
	info, err := recordbatch.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return data, info
}

// What the plugin finds on a damaged disk reaches the broker's log with its
// level and its attributes.
func TestLogLevelsOfAProcess(t *testing.T) {
	program, cfg := buildPlugin(t), config(memoryDir(t)+"/store")
	p, s, _ := launchLogged(t, program, cfg)
	specs := []storage.OpenSpec{
		{ID: storage.LogID{Partition: 1}, Label: "damaged", Create: true},
		{ID: storage.LogID{Partition: 2}, Label: "torn", Create: true},
	}
	var first [][]byte
	for i, res := range s.Open(t.Context(), specs) {
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		data, info := record(t, 0, byte('a'+i))
		first = append(first, data)
		done := make(chan error, 1)
		s.Append(t.Context(), storage.AppendRequest{Handle: res.Handle, Batches: []storage.BatchInfo{info}, Data: [][]byte{data}},
			func(_ storage.AppendResult, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if res := s.Flush(t.Context(), []storage.Handle{res.Handle})[0]; res.Err != nil {
				t.Fatal(res.Err)
			}
		}
	}
	p.Kill()
	s.Abandon() // which lets go of the store's lock
	if err := storagetest.OverwriteInFiles(pathOf(cfg), first[0], 80, []byte("xx")); err != nil {
		t.Fatal(err)
	}
	if err := storagetest.TearInFiles(pathOf(cfg), first[1], 90); err != nil {
		t.Fatal(err)
	}

	p, s, said := launchLogged(t, program, cfg)
	s.Open(t.Context(), specs)
	p.Kill() // all that it said is there when this returns
	for _, want := range []string{
		`level=ERROR msg="damage below the recovery point" plugin=storage-file err=".*" offset=0 path=\S*damaged-1\.`,
		`level=WARN msg="recovery dropped .*" plugin=storage-file path=\S*torn-2\.`,
	} {
		if !regexp.MustCompile(want).MatchString(said.String()) {
			t.Errorf("the broker's log lacks %s:\n%s", want, said)
		}
	}
}
