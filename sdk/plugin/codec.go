package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// frame is our side of the message storage.v1.Frame. To send one, fill parts;
// one that was received has value, which lives in buf until free.
type frame struct {
	parts mem.BufferSlice // sent back to back as the value; not copied
	value []byte          // of a frame received
	buf   mem.Buffer      // what value is a part of
}

// free gives back what a received frame holds.
func (f *frame) free() {
	if f.buf != nil {
		f.buf.Free()
		f.buf, f.value = nil, nil
	}
}

// frameTag is the tag of Frame's only field: number 1, length-delimited.
const frameTag = 1<<3 | byte(protowire.BytesType)

var errFrame = errors.New("not a frame")

// codec speaks protobuf as gRPC's own codec does, and *frame without building a
// message: what it writes for one is what protobuf writes for a storage.v1.Frame
// with that value, byte for byte, and it reads every encoding of one.
type codec struct {
	proto encoding.CodecV2
	// pool is where received frames live. With a pool that forgets, bytes may be
	// handed on without a copy.
	pool mem.BufferPool
}

// newCodec makes a codec around gRPC's own.
func newCodec(pool mem.BufferPool) *codec {
	return &codec{proto: encoding.GetCodecV2(proto.Name), pool: pool}
}

// Name is protobuf's, since the wire is.
func (c *codec) Name() string { return proto.Name }

// Marshal encodes v. A frame's parts are passed on, not copied.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return c.proto.Marshal(v)
	}
	head := binary.AppendUvarint([]byte{frameTag}, uint64(f.parts.Len()))
	out := make(mem.BufferSlice, 0, len(f.parts)+1)
	return append(append(out, mem.SliceBuffer(head)), f.parts...), nil
}

// Unmarshal decodes data into v.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return c.proto.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(c.pool)
	value, err := frameValue(buf.ReadOnlyData())
	if err != nil {
		buf.Free()
		return err
	}
	f.value, f.buf = value, buf
	return nil
}

// frameValue finds the value in an encoded Frame. As in all of protobuf, of a
// field that comes twice the last counts, and unknown fields are skipped.
func frameValue(b []byte) ([]byte, error) {
	var value []byte
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, fmt.Errorf("%w: %w", errFrame, protowire.ParseError(n))
		}
		if num > protowire.MaxValidNumber {
			return nil, fmt.Errorf("%w: field number %d", errFrame, num)
		}
		b = b[n:]
		if num == 1 && typ == protowire.BytesType {
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return nil, fmt.Errorf("%w: %w", errFrame, protowire.ParseError(n))
			}
			value, b = v, b[n:]
			continue
		}
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return nil, fmt.Errorf("%w: %w", errFrame, protowire.ParseError(n))
		}
		b = b[n:]
	}
	return value, nil
}
