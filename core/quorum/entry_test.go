package quorum

import (
	"testing"

	"github.com/brokerd/brokerd/core/image"
)

func TestEntryRoundTrip(t *testing.T) {
	records := []image.Record{&image.ProducerIDsRecord{Next: 7}}
	b := encodeEntry(session{1, 2}, 300, records)
	s, p, got, err := decodeEntry(b)
	if err != nil || s != (session{1, 2}) || p != 300 || len(got) != 1 || *got[0].(*image.ProducerIDsRecord) != (image.ProducerIDsRecord{Next: 7}) {
		t.Errorf("decoded %v, %d, %v, %v", s, p, got, err)
	}
	for n := range b {
		if _, _, _, err := decodeEntry(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes decode", n, len(b))
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(encodeEntry(session{}, 1, []image.Record{&image.ClusterRecord{Cluster: image.Cluster{ID: "c", FeatureLevel: 1}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, records, err := decodeEntry(b); err == nil {
			_, _ = replay(&image.Image{}, 1, records)
		}
	})
}
