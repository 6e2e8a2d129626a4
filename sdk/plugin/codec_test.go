package plugin

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
)

// marshalFrame encodes parts by our codec.
func marshalFrame(t testing.TB, parts ...[]byte) []byte {
	t.Helper()
	f := &frame{}
	for _, p := range parts {
		f.parts = append(f.parts, mem.SliceBuffer(p))
	}
	out, err := newCodec(mem.DefaultBufferPool()).Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return out.Materialize()
}

func TestFrameIsWhatProtobufMakes(t *testing.T) {
	for _, parts := range [][][]byte{
		{[]byte("a")},
		{[]byte("abc"), {}, bytes.Repeat([]byte{0}, 127), bytes.Repeat([]byte{1}, 70000)},
	} {
		value := bytes.Join(parts, nil)
		want, err := proto.Marshal(&storagev1.Frame{Value: value})
		if err != nil {
			t.Fatal(err)
		}
		if got := marshalFrame(t, parts...); !bytes.Equal(got, want) {
			t.Errorf("a value of %d bytes is encoded differently", len(value))
		}
	}
}

func TestFrameIsReadInPieces(t *testing.T) {
	value := bytes.Repeat([]byte("record"), 10000)
	wire := marshalFrame(t, value)
	var pieces mem.BufferSlice
	for len(wire) > 0 {
		n := min(len(wire), 4099)
		pieces = append(pieces, mem.SliceBuffer(wire[:n]))
		wire = wire[n:]
	}
	var f frame
	if err := newCodec(mem.DefaultBufferPool()).Unmarshal(pieces, &f); err != nil {
		t.Fatal(err)
	}
	defer f.free()
	if !bytes.Equal(f.value, value) {
		t.Error("the value changed")
	}
}

func TestCodecLeavesMessagesToProtobuf(t *testing.T) {
	c := newCodec(mem.DefaultBufferPool())
	out, err := c.Marshal(&storagev1.TrimRequest{Handle: 3, To: 9})
	if err != nil {
		t.Fatal(err)
	}
	var m storagev1.TrimRequest
	if err := c.Unmarshal(out, &m); err != nil || m.GetHandle() != 3 || m.GetTo() != 9 {
		t.Errorf("%v, %v", &m, err)
	}
}

// FuzzFrame reads anything as protobuf does.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(marshalFrame(f, []byte("x")))
	f.Add([]byte{0x10, 0x05, 0x0a, 0x01, 0x41, 0x0a, 0x00}) // an unknown field, and the value twice
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, wire []byte) {
		var want storagev1.Frame
		wantErr := proto.Unmarshal(wire, &want)
		got, err := frameValue(wire)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%v, protobuf says %v", err, wantErr)
		}
		if err == nil && !bytes.Equal(got, want.GetValue()) {
			t.Fatalf("value %x, protobuf says %x", got, want.GetValue())
		}
	})
}
