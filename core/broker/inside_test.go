package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// watched tells what became of the store that it opened.
type watched struct {
	storage.Provider
	opened storage.Store
}

func (w *watched) Open(ctx context.Context, sc storage.Config) (storage.Store, storage.DirectoryID, error) {
	s, id, err := w.Provider.Open(ctx, sc)
	w.opened = s
	return s, id, err
}

// A store that this process opens itself keeps records as a plugin does, has no process,
// and is shut down with the broker.
func TestStoreInside(t *testing.T) {
	w := &watched{Provider: memstore.NewProvider(memstore.Options{})}
	b := startBroker(t, newBrokerWith(t, settings(t, t.TempDir()), Deps{Inside: map[string]storage.Provider{"memstore": w}}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := client(t, b, kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("inside"))
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "inside", Value: []byte("hello")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	got := c.PollFetches(ctx)
	if err := got.Err(); err != nil || got.NumRecords() != 1 {
		t.Fatalf("got %d records, %v", got.NumRecords(), err)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	_, err := w.opened.List(context.Background())
	if !errors.Is(err, storage.ErrGone) {
		t.Errorf("the store answers %v after the broker's end, not ErrGone", err)
	}
}

// A store that cannot be opened stops the start, with what it says.
func TestStoreInsideRefuses(t *testing.T) {
	cfg := settings(t, t.TempDir())
	b := newBrokerWith(t, cfg, Deps{Inside: map[string]storage.Provider{"memstore": refusing{}}})
	if err := b.Run(t.Context()); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("Run: %v, not ErrFenced", err)
	}
}

type refusing struct{ storage.Provider }

func (refusing) Open(context.Context, storage.Config) (storage.Store, storage.DirectoryID, error) {
	return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrFenced, "it is another's")
}
