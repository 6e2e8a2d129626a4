package wire

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestVersions(t *testing.T) {
	table := NewTable()
	last := int16(-1)
	for _, a := range APIs() {
		if a.Key <= last {
			t.Errorf("%s is out of order", a.Name())
		}
		last = a.Key
		codec := kmsg.RequestForKey(a.Key)
		if codec == nil {
			t.Fatalf("the codec does not know key %d", a.Key)
		}
		if a.Min < 0 || a.Min > a.Serves || a.Serves > a.Max || a.Max > codec.MaxVersion() {
			t.Errorf("%s: %d, %d, %d do not fit the codec's %d", a.Name(), a.Min, a.Serves, a.Max, codec.MaxVersion())
		}
		if a.Min != a.Serves && a.Key != KeyProduce {
			t.Errorf("%s advertises versions that it does not serve", a.Name())
		}
		if got, ok := table.Lookup(a.Key); !ok || got != a {
			t.Errorf("lookup of %s: %+v", a.Name(), got)
		}
		if a.Supports(a.Serves-1) || !a.Supports(a.Serves) || !a.Supports(a.Max) || a.Supports(a.Max+1) {
			t.Errorf("%s supports other versions than %d to %d", a.Name(), a.Serves, a.Max)
		}
	}
	if _, ok := table.Lookup(kmsg.TxnOffsetCommit.Int16()); ok {
		t.Error("transactions are not served yet")
	}
}

// FR-78: librdkafka compresses only when Produce is advertised from version 0.
func TestProduceIsAdvertisedFromZero(t *testing.T) {
	i := slices.IndexFunc(APIs(), func(a API) bool { return a.Key == KeyProduce })
	if p := APIs()[i]; p.Min != 0 || p.Supports(2) || !p.Supports(3) {
		t.Fatalf("produce: %+v", p)
	}
}
