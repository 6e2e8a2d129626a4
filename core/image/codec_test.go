package image

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/core/model"
)

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(anyRecord(), 0, 20).Draw(t, "records")
		for i, r := range want { // a list that may not be nil is read as nil when empty
			if p, ok := r.(*PartitionRecord); ok && len(p.Registration.ISR) == 0 {
				q := *p
				q.Registration.ISR = nil
				want[i] = &q
			}
		}
		b := AppendBatch(nil, want)
		got, err := DecodeBatch(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("%#v became %#v", want, got)
		}
		for n := range b {
			if _, err := DecodeBatch(b[:n]); err == nil {
				t.Fatalf("the first %d of %d bytes decode", n, len(b))
			}
		}
	})
}

// The bytes of each version, for ever.
func TestGoldenBytes(t *testing.T) {
	tests := []struct {
		record Record
		bytes  string
	}{
		{&ClusterRecord{Cluster{ID: "ab", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}}, "0101" + "010106" + "026162" + "020604"},
		{&BrokerFenceRecord{ID: 1, Epoch: 300, Fenced: true}, "0101" + "030104" + "02" + "d804" + "01"},
		{&PartitionChangeRecord{Partition: model.Partition{Index: 1}, ISR: []model.NodeID{}, LeaderChange: true, Leader: model.NoNode},
			"0101" + "070119" + strings.Repeat("00", 16) + "02" + "00" + "00" + "0100" + "00" + "00" + "01" + "01"},
		{&ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "t"}, Key: "k", Value: "v"}, "0101" + "0a0108" + "04" + "0174" + "016b" + "00" + "0176"},
		{&BrokerRecord{ID: 1, Epoch: 2, Incarnation: [16]byte{15: 3}, Rack: "r", Listeners: map[string]Endpoint{"l": {"h", 4}}, Directories: []model.DirectoryID{{15: 5}}, Fenced: true},
			"0101" + "02012c" + "02" + "04" + strings.Repeat("00", 15) + "03" + "0172" + "01016c016808" + "01" + strings.Repeat("00", 15) + "05" + "01"},
		{&BrokerRecord{ID: 1, ShuttingDown: true, Offline: []model.DirectoryID{{15: 6}}},
			"0101" + "020228" + "02" + "00" + strings.Repeat("00", 16) + "00" + "00" + "00" + "00" + "01" + "01" + strings.Repeat("00", 15) + "06"},
		{&BrokerFenceRecord{ID: 1, Epoch: 300, ShuttingDown: true}, "0101" + "030206" + "02" + "d804" + "00" + "01" + "00"},
		{&PartitionRecord{model.Partition{Index: 1}, Partition{Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{{15: 2}}, ISR: []model.NodeID{1}, Leader: 1, LeaderEpoch: 3, PartitionEpoch: 4}},
			"0101" + "06012b" + strings.Repeat("00", 16) + "02" + "0102" + "01" + strings.Repeat("00", 15) + "02" + "0102" + "00" + "00" + "02" + "06" + "08"},
		{&PartitionRecord{model.Partition{}, Partition{Leader: 1, Adding: []model.NodeID{1}, Removing: []model.NodeID{2}}},
			"0101" + "06021d" + strings.Repeat("00", 16) + "00" + "00" + "00" + "00" + "00" + "00" + "02" + "00" + "00" + "0102" + "0104"},
		{&MemberRecord{Directory: model.DirectoryID{15: 5}, Node: 1, Endpoint: "e:1", MayVote: true}, "0101" + "0c0116" + strings.Repeat("00", 15) + "05" + "02" + "03653a31" + "01"},
		{&MemberRemovalRecord{Directory: model.DirectoryID{15: 5}}, "0101" + "0d0110" + strings.Repeat("00", 15) + "05"},
		{&PartitionChangeRecord{Adding: []model.NodeID{}, Removing: []model.NodeID{2}},
			"0101" + "07021c" + strings.Repeat("00", 16) + "00" + "00" + "00" + "00" + "00" + "00" + "00" + "0100" + "010104"},
		{&PartitionRecord{model.Partition{}, Partition{Leader: 1, Loss: &Loss{Epoch: 2, From: 5, At: 64}}},
			"0101" + "060320" + strings.Repeat("00", 16) + "00" + "0000000000" + "02" + "00" + "00" + "00" + "00" + "04" + "0a" + "00" + "8001"},
		{&PartitionTargetRecord{Partition: model.Partition{Index: 1}, Chosen: 2, Raised: true}, "0101" + "0e0113" + strings.Repeat("00", 16) + "02" + "04" + "01"},
		{&PartitionChangeRecord{Loss: &Loss{Epoch: 3, From: -1, Unclean: true, At: 1}},
			"0101" + "07031d" + strings.Repeat("00", 16) + "00" + "0000000000" + "00" + "00" + "00" + "06" + "01" + "01" + "02"},
	}
	for _, tt := range tests {
		if got := hex.EncodeToString(AppendBatch(nil, []Record{tt.record})); got != tt.bytes {
			t.Errorf("%T encodes as\n%s; want\n%s", tt.record, got, tt.bytes)
		}
		b, err := hex.DecodeString(tt.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeBatch(b); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], tt.record) {
			t.Errorf("%s is read as %+v, %v; want %+v", tt.bytes, got, err, tt.record)
		}
	}
}

func TestUnknownRecordsAreNamed(t *testing.T) {
	batch := func(k, version uint64) []byte {
		b := binary.AppendUvarint([]byte{batchFormat, 1}, k)
		b = binary.AppendUvarint(b, version)
		return append(b, 0)
	}
	tests := []struct {
		bytes []byte
		says  string
	}{
		{batch(99, 1), "type 99 version 1"},
		{batch(1<<40, 1), "type 1099511627776 version 1"},
		{batch(uint64(kindTopic), 2), "topic 5 version 2"},
		{batch(uint64(kindTopic), 0), "topic 5 version 0"},
	}
	for _, tt := range tests {
		_, err := DecodeBatch(tt.bytes)
		if !errors.Is(err, ErrUnknownRecord) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("DecodeBatch(%x) = %v; want ErrUnknownRecord that says %q", tt.bytes, err, tt.says)
		}
	}
	// A newer version of what an older one says as well.
	if _, err := DecodeBatch([]byte{batchFormat, 1, byte(kindBrokerFence), 2, 5, 2, 2, 1, 0, 0}); !errors.Is(err, errCorrupt) {
		t.Errorf("a version that nobody writes: %v", err)
	}
	if _, err := DecodeBatch([]byte{2, 0}); err == nil || errors.Is(err, ErrUnknownRecord) {
		t.Errorf("another batch format: %v", err)
	}
}

// What decodes is encoded as the same bytes, and costs no more memory than its
// input pays for.
func FuzzDecodeBatch(f *testing.F) {
	f.Add(AppendBatch(nil, []Record{testCluster, &BrokerRecord{ID: 1, Listeners: map[string]Endpoint{"a": {}, "b": {"h", 1}}}}))
	f.Add(AppendBatch(nil, []Record{&PartitionRecord{Registration: registration(1, 2)}, &PartitionChangeRecord{ELR: []model.NodeID{}}}))
	f.Add([]byte{batchFormat, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := DecodeBatch(b)
		if err != nil {
			return
		}
		if again := AppendBatch(nil, records); !slices.Equal(again, b) {
			t.Fatalf("%x encodes as %x", b, again)
		}
		_, _ = FromRecords(1, records...)
	})
}
