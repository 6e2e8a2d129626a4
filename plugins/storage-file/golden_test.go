package storagefile

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// testdata/golden-v1 is a store as version 1 of the format left it: the first
// log was closed in order, the second was in use when the process was killed.
// It was made once and is never made again to pass.
const golden = "testdata/golden-v1"

var (
	goldenClosed = storage.LogID{Topic: [16]byte{0xc1, 0x05, 0xed}, Partition: 0}
	goldenKilled = storage.LogID{Topic: [16]byte{0x61, 0x11, 0xed}, Partition: 3}
)

// goldenBatch is the i-th batch that was appended to a log: two records each,
// the leader epoch rising after five.
func goldenBatch(i int) []byte {
	return recordbatch.Build(nil, recordbatch.Header{
		Info: recordbatch.Info{
			BaseOffset: int64(2 * i), LastOffset: int64(2*i + 1), LeaderEpoch: int32(i / 5),
			BaseTimestamp: int64(1000 + i), MaxTimestamp: int64(1000 + i),
			ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: 2,
		},
		Payload: bytes.Repeat([]byte{byte('a' + i)}, 140),
	})
}

func TestGolden(t *testing.T) {
	dir := t.TempDir() + "/store"
	if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	cfg := config(dir)
	cfg.Settings = []byte(`{"path":"` + dir + `","reserve":0,"boot_id":"golden"}`)
	p := &provider{fs: vfs.OS{}, now: time.Now}
	store, id, err := p.Open(ctx, cfg)
	if err != nil || id != cfg.ProposedDirectoryID {
		t.Fatalf("directory id %x, %v", id, err)
	}
	defer func() {
		if err := store.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}()
	logs, err := store.List(ctx)
	if err != nil || len(logs) != 2 {
		t.Fatalf("list: %v, %v", logs, err)
	}
	for _, c := range []struct {
		id       storage.LogID
		start    int64
		durable  int64
		batches  []int
		blobs    bool
		epochs   int
		fromTime int64 // where timestamp 1012 is found
	}{
		// Trimmed to 5, and the batches 6 and 8 taken out by a replacement.
		{goldenClosed, 5, 30, []int{2, 3, 4, 5, 7, 9, 10, 11, 12, 13, 14}, true, 3, 24},
		{goldenKilled, 0, 30, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, false, 3, 24},
	} {
		res := store.Open(ctx, []storage.OpenSpec{{ID: c.id, LeaderEpoch: 2}})[0]
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		if res.LogStart != c.start || res.LEO != 30 || res.Durable != c.durable || res.Verdict != storage.VerdictIntact || len(res.Epochs) != c.epochs {
			t.Errorf("opened as %+v", res)
		}
		var want []byte
		for _, i := range c.batches {
			want = append(want, goldenBatch(i)...)
		}
		got, err := store.Read(ctx, storage.ReadRequest{Handle: res.Handle, Offset: res.LogStart, UpTo: 30, MaxBytes: 1 << 20})
		if err != nil || !bytes.Equal(got.Data, want) {
			t.Errorf("%d bytes, %v; want %d", len(got.Data), err, len(want))
		}
		at, found, err := store.FindTimestamp(ctx, storage.TimestampQuery{Handle: res.Handle, Timestamp: 1012, UpTo: 30})
		if err != nil || !found || at.BaseOffset != c.fromTime {
			t.Errorf("timestamp 1012 at %d, %v, %v", at.BaseOffset, found, err)
		}
		blob, found, err := store.GetBlob(ctx, res.Handle, "producers")
		if err != nil || found != c.blobs || found && (blob.Offset != 20 || string(blob.Data) != "golden") {
			t.Errorf("blob %+v, %v, %v", blob, found, err)
		}
	}
}
