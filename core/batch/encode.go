package batch

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/brokerd/brokerd/core/model"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// newEncoder writes to out what is written to it, compressed as Kafka's Java producer
// does: snappy in xerial's framing. What is written last comes out with Close.
func newEncoder(codec Codec, out io.Writer) (io.WriteCloser, error) {
	switch codec {
	case None:
		return plain{out}, nil
	case Gzip:
		return gzip.NewWriter(out), nil
	case LZ4:
		w := lz4.NewWriter(out)
		return w, w.Apply(lz4.BlockSizeOption(lz4.Block64Kb))
	case Zstd:
		return zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	case Snappy:
		return &xerialWriter{out: out}, nil
	}
	return nil, fmt.Errorf("%w: %s", model.ErrUnsupportedCompression, codec)
}

// plain compresses nothing.
type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// xerialBlockBytes is what xerial's library puts into one block.
const xerialBlockBytes = 32 << 10

// xerialWriter frames snappy as codec.go draws it.
type xerialWriter struct {
	out     io.Writer
	begun   bool
	pending []byte // less than a block
	frame   []byte
}

func (x *xerialWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		take := min(len(p), xerialBlockBytes-len(x.pending))
		x.pending, p = append(x.pending, p[:take]...), p[take:]
		if len(x.pending) == xerialBlockBytes {
			if err := x.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (x *xerialWriter) Close() error { return x.flush() }

func (x *xerialWriter) flush() error {
	x.frame = x.frame[:0]
	if !x.begun {
		x.begun = true
		x.frame = append(append(x.frame, xerialMagic...), 0, 0, 0, 1, 0, 0, 0, 1)
	}
	if len(x.pending) > 0 {
		block := snappy.Encode(nil, x.pending)
		x.frame = append(binary.BigEndian.AppendUint32(x.frame, uint32(len(block))), block...)
		x.pending = x.pending[:0]
	}
	_, err := x.out.Write(x.frame)
	return err
}
