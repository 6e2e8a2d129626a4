package broker

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/telemetry"
	"github.com/brokerd/brokerd/sdk/storage"
)

// oneTopic is an image with one partition of node 1, in a directory.
func oneTopic(t *testing.T, dir model.DirectoryID) (*image.Image, model.Partition) {
	t.Helper()
	p := model.Partition{Topic: model.TopicID{1}}
	d := image.NewDelta(&image.Image{}, 1)
	for _, r := range []image.Record{
		&image.ClusterRecord{Cluster: image.Cluster{ID: "c", FeatureLevel: 1}},
		&image.TopicRecord{ID: p.Topic, Name: "orders"},
		&image.PartitionRecord{Partition: p, Registration: image.Partition{
			Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{dir}, ISR: []model.NodeID{1}, Leader: 1,
		}},
	} {
		if err := d.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	return d.Image(), p
}

func TestDamageIsToldOfOnceAMinute(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1000, 0)
	metrics := telemetry.NewMetrics()
	tr := newTroubles(metrics.Replica(), slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	torn := storage.Errorf(storage.ErrCorrupt, "batch at 5 is torn")
	for range 4 {
		tr.Damaged("orders", 0, 5, torn)
	}
	tr.Damaged("gone", 0, 1, torn)
	if n := strings.Count(log.String(), "topic=orders"); n != 1 {
		t.Errorf("logged %d times in a moment:\n%s", n, &log)
	}
	now = now.Add(damageLogEvery)
	tr.Damaged("orders", 0, 5, torn)
	if n := strings.Count(log.String(), "topic=orders"); n != 2 {
		t.Errorf("logged %d times in two minutes:\n%s", n, &log)
	}
	img, p := oneTopic(t, model.DirectoryID{9})
	got := damageWarnings(tr.damages(img, map[model.Partition]int64{p: 5}))
	if len(got) != 1 || !strings.Contains(got[0], "orders, partition 0, are damaged at offset 5") {
		t.Errorf("warnings %q", got)
	}
	if got := tr.damages(img, map[model.Partition]int64{p: 6}); len(got) != 0 {
		t.Errorf("after DeleteRecords: %v", got)
	}
	w := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if want := `brokerd_replica_damaged_reads_total{topic="orders"} 5`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("no %s", want)
	}
}

func TestFullStoreIsToldOf(t *testing.T) {
	tr := newTroubles(telemetry.NewMetrics().Replica(), slog.New(slog.DiscardHandler), time.Now)
	for _, step := range []struct {
		err  error
		full bool
	}{
		{nil, false},
		{storage.Errorf(storage.ErrFull, "no room"), true},
		{errors.New("something else"), true},
		{nil, false},
	} {
		tr.Appended("main", step.err)
		if _, full := tr.isFull("main"); full != step.full {
			t.Errorf("after %v: full %v, want %v", step.err, full, step.full)
		}
	}
}

func TestLostStoreIsToldOf(t *testing.T) {
	img, _ := oneTopic(t, model.DirectoryID{9})
	if got := lostStores(img, 1, []model.DirectoryID{{9}}); len(got) != 0 {
		t.Errorf("nothing is lost: %q", got)
	}
	got := lostStores(img, 1, []model.DirectoryID{{8}})
	if len(got) != 1 || !strings.Contains(got[0], "1 replicas of this broker are in directory "+model.DirectoryID{9}.String()) {
		t.Errorf("lost: %q", got)
	}
}
