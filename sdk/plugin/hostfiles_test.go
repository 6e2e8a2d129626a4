package plugin

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/brokerd/brokerd/sdk/plugin/internal/filestore"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// keeper is a provider that keeps the store that it opened.
type keeper struct {
	storage.Provider
	opened storage.Store
}

func (k *keeper) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	s, id, err := k.Provider.Open(ctx, cfg)
	k.opened = s
	return s, id, err
}

// lendHere opens a store that lends its files behind a fast lane, and returns both
// ends.
func lendHere(t *testing.T) (*Store, *filestore.Store) {
	t.Helper()
	k := &keeper{Provider: filestore.NewProvider(filestore.Options{})}
	server := NewStorageServer(k, nil, nil)
	g := grpc.NewServer(ServerOptions()...)
	server.Register(g)
	near, far, err := SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	server.AddSocket(far)
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	serving.Go(func() { _ = server.RunSocket(ctx, far) })
	client := NewClient(dial(t, g, DialOptions()...), 0)
	client.AddSocket(near, CarrierFiles)
	s, _, err := client.Store(t.Context(), storage.Config{
		Settings: filestore.Settings(t.TempDir()), Identity: storage.Identity{ClusterID: "c", NodeID: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		s.Abandon()
		serving.Wait()
	})
	return s, k.opened.(*filestore.Store)
}

// openFilled opens a log and appends n records.
func openFilled(t *testing.T, s *Store, partition int32, n int64) storage.Handle {
	t.Helper()
	r := s.Open(t.Context(), []storage.OpenSpec{{ID: storage.LogID{Partition: partition}, Create: true, LeaderEpoch: 1}})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	done := make(chan error, 1)
	for base := range n {
		info := recordbatch.Info{BaseOffset: base, LastOffset: base, LeaderEpoch: 1, ProducerID: -1, Records: 1}
		data := recordbatch.Build(nil, recordbatch.Header{Info: info, Payload: []byte("payload")})
		info.Bytes = int32(len(data))
		s.Append(t.Context(), storage.AppendRequest{
			Handle: r.Handle, LeaderEpoch: 1, BaseOffset: base, Batches: []storage.BatchInfo{info}, Data: [][]byte{data},
		}, func(_ storage.AppendResult, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return r.Handle
}

// lentCount is how many logs the host may write.
func (f *hostFiles) lentCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lent)
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(limit) {
			t.Fatalf("not so: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// A grant that is not used goes back, and comes again when the log is appended to.
func TestIdleGrantsGoBack(t *testing.T) {
	s, plugin := lendHere(t)
	h := openFilled(t, s, 0, 20)
	l := s.files.log(h)
	if n := plugin.Grants(); n != 1 || s.files.lentCount() != 1 {
		t.Fatalf("%d and %d grants after appends", n, s.files.lentCount())
	}
	l.used.Store(0) // in 1970
	until(t, "the host gave it back", func() bool { return s.files.lentCount() == 0 })
	until(t, "the plugin has it back", func() bool { return plugin.Grants() == 0 })
	if infos, err := s.Scan(t.Context(), storage.ScanRequest{Handle: h, UpTo: 20}); err != nil || len(infos) != 20 {
		t.Errorf("%d headers, %v", len(infos), err)
	}
}

// What the host holds of the plugin's files is bounded, by log and by store, and all
// of it goes with the store.
func TestLeasesAreBounded(t *testing.T) {
	s, _ := lendHere(t)
	c := s.files.leases
	for n := range int32(leasesMax + 20) {
		h := openFilled(t, s, n, 3)
		for offset := int64(2); offset >= 0; offset-- { // before what is leased already
			req := storage.ReadRequest{Handle: h, Offset: offset, UpTo: 3, MaxBytes: 1000, AtLeastOne: true}
			if res, err := s.Read(t.Context(), req); err != nil || res.Next != 3 {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		c.mu.Lock()
		count, own := c.count, len(c.logs[h].leases)
		c.mu.Unlock()
		if count > leasesMax || own == 0 || own > leasesPerLog {
			t.Fatalf("%d leases, %d of the log", count, own)
		}
	}
	s.Abandon()
	if c.count != 0 {
		t.Errorf("%d leases after the end", c.count)
	}
}

// What is lent is not written any more once the store was abandoned, whoever still
// appends.
func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	s, _ := lendHere(t)
	h := openFilled(t, s, 0, 20)
	s.lane.fail(errRevoked) // as when the process dies
	l := s.files.log(h)
	l.mu.Lock()
	held := l.grant != nil
	l.mu.Unlock()
	s.Abandon()
	if !held {
		t.Error("the grant ended before the store was abandoned")
	}
	if err := s.files.using(func() error { return nil }); err == nil {
		t.Error("files can be used")
	}
	if l.grant != nil || s.files.lentCount() != 0 {
		t.Error("a grant is left")
	}
}
