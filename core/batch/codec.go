package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/brokerd/brokerd/core/model"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is how a batch's records are compressed, in Kafka's numbers.
type Codec int8

// The codecs.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd

	codecs = int(Zstd) + 1
)

func (c Codec) valid() bool { return c >= None && c <= Zstd }

// String is Kafka's name for the codec.
func (c Codec) String() string {
	if !c.valid() {
		return fmt.Sprintf("codec %d", int8(c))
	}
	return [codecs]string{"none", "gzip", "snappy", "lz4", "zstd"}[c]
}

// CodecNamed is the codec that a topic's compression.type names. There is none for
// producer, which keeps whatever came.
func CodecNamed(compressionType string) (Codec, bool) {
	switch compressionType {
	case "uncompressed":
		return None, true
	case "gzip":
		return Gzip, true
	case "snappy":
		return Snappy, true
	case "lz4":
		return LZ4, true
	case "zstd":
		return Zstd, true
	}
	return None, false
}

const (
	// zstdWindowBytes is the greatest window that every decoder of zstd is asked
	// to support (RFC 8878). Producers at the highest levels ask for up to
	// zstdWindowMaxBytes, Kafka's own limit; such a window is allocated whole, so
	// that only one is decoded at a time.
	zstdWindowBytes    = 8 << 20
	zstdWindowMaxBytes = 128 << 20
	// snappyRatioMax: three bytes of snappy stand for at most 64.
	snappyRatioMax = 22
	// keepBytes bounds the decoded block that a pooled source keeps.
	keepBytes = 1 << 20
)

// decoders shares what decompression needs among all that check batches. It
// holds no state that anybody could see: pooled decoders, and the two gates that
// bound how many of them have memory at once.
var decoders = struct {
	gate  chan struct{}
	wide  chan struct{}
	pools [codecs]sync.Pool
}{
	gate: make(chan struct{}, runtime.GOMAXPROCS(0)),
	wide: make(chan struct{}, 1),
}

// source gives the decompressed bytes of one payload, a window at a time.
type source struct {
	codec  Codec
	wide   bool
	window []byte // what more returns, for the codecs that are readers
	in     bytes.Reader
	reader io.Reader

	gzip *gzip.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder

	// snappy: what is left of the payload, and the last block decoded.
	rest   []byte
	framed bool
	block  []byte
	limit  int64
}

// openSource waits for its turn. Whoever opens a source closes it soon, and
// opens no other before.
func openSource(codec Codec, payload []byte, limit int64) (*source, error) {
	if codec == None || !codec.valid() {
		return nil, fmt.Errorf("%w: %s", model.ErrUnsupportedCompression, codec)
	}
	wide, err := zstdIsWide(codec, payload, limit)
	if err != nil {
		return nil, err
	}
	if wide {
		decoders.wide <- struct{}{} // first, so that those who wait here are in nobody's way
	}
	decoders.gate <- struct{}{}
	var s *source
	if !wide {
		s, _ = decoders.pools[codec].Get().(*source)
	}
	if s == nil {
		s = &source{codec: codec, wide: wide}
	}
	s.limit = limit
	opened := false
	defer func() {
		if !opened { // or a decoder panicked: its place must not be lost
			s.close()
		}
	}()
	if err := s.reset(payload); err != nil {
		return nil, undecodable(codec, err)
	}
	opened = true
	return s, nil
}

// close returns the source to its pool and lets the next one in.
func (s *source) close() {
	s.in.Reset(nil)
	s.rest, s.reader = nil, nil
	if cap(s.block) > keepBytes {
		s.block = nil
	}
	if s.wide {
		if s.zstd != nil {
			s.zstd.Close()
		}
		<-decoders.wide
	} else {
		decoders.pools[s.codec].Put(s)
	}
	<-decoders.gate
}

// zstdIsWide: the payload's first frame needs an unusual window. A frame that
// says that it unfolds beyond the limit is believed, and refused.
func zstdIsWide(codec Codec, payload []byte, limit int64) (bool, error) {
	if codec != Zstd {
		return false, nil
	}
	var h zstd.Header
	if err := h.Decode(payload); err != nil {
		return false, undecodable(codec, err)
	}
	if h.HasFCS && h.FrameContentSize > uint64(limit) {
		return false, errUnfolds
	}
	return h.WindowSize > zstdWindowBytes, nil
}

func (s *source) reset(payload []byte) (err error) {
	s.in.Reset(payload)
	if s.window == nil && s.codec != Snappy {
		s.window = make([]byte, walkBytes)
	}
	switch s.codec {
	case Gzip:
		if s.gzip == nil {
			s.gzip = new(gzip.Reader)
		}
		err, s.reader = s.gzip.Reset(&s.in), s.gzip
	case LZ4:
		if s.lz4 == nil {
			s.lz4 = lz4.NewReader(nil)
		}
		s.lz4.Reset(&s.in)
		s.reader = s.lz4
	case Zstd:
		if s.zstd == nil {
			window := uint64(zstdWindowBytes)
			if s.wide {
				window = zstdWindowMaxBytes
			}
			s.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
			if err != nil {
				return err
			}
		}
		err, s.reader = s.zstd.Reset(&s.in), s.zstd
	case Snappy:
		s.rest, s.framed = payload, bytes.HasPrefix(payload, []byte(xerialMagic))
	}
	return err
}

// more returns the next bytes, which are valid until it is called again, or an
// error: io.EOF at the end. Neither: nothing yet.
func (s *source) more() ([]byte, error) {
	if s.codec == Snappy {
		return s.snappyBlock()
	}
	const attempts = 100 // of a reader that gives nothing
	for range attempts {
		n, err := s.reader.Read(s.window)
		switch {
		case n > 0:
			return s.window[:n], nil
		case err == io.EOF:
			return nil, io.EOF
		case err != nil:
			return nil, undecodable(s.codec, err)
		}
	}
	return nil, undecodable(s.codec, io.ErrNoProgress)
}

// Snappy comes as one block, or in the framing of xerial's Java library: a
// header (8 bytes of magic, two 32-bit versions), then blocks with a 32-bit
// length each; a header may come again.
const (
	xerialMagic       = "\x82SNAPPY\x00"
	xerialHeaderBytes = 16
	xerialLengthBytes = 4
)

func (s *source) snappyBlock() ([]byte, error) {
	for s.framed && bytes.HasPrefix(s.rest, []byte(xerialMagic)) {
		if len(s.rest) < xerialHeaderBytes {
			return nil, undecodable(Snappy, io.ErrUnexpectedEOF)
		}
		s.rest = s.rest[xerialHeaderBytes:]
	}
	for len(s.rest) > 0 {
		block := s.rest
		if s.framed {
			if len(s.rest) < xerialLengthBytes {
				return nil, undecodable(Snappy, io.ErrUnexpectedEOF)
			}
			n := binary.BigEndian.Uint32(s.rest)
			s.rest = s.rest[xerialLengthBytes:]
			if uint64(n) > uint64(len(s.rest)) {
				return nil, undecodable(Snappy, io.ErrUnexpectedEOF)
			}
			block = s.rest[:n]
		}
		s.rest = s.rest[len(block):]
		n, err := snappy.DecodedLen(block)
		switch {
		case err != nil:
			return nil, undecodable(Snappy, err)
		case int64(n) > int64(len(block))*snappyRatioMax:
			return nil, undecodable(Snappy, errors.New("a block claims more than it can hold"))
		case int64(n) > s.limit:
			return nil, errUnfolds
		case n == 0:
			continue
		}
		if cap(s.block) < n {
			s.block = make([]byte, n)
		}
		b, err := snappy.DecodeStrict(s.block[:cap(s.block)], block)
		if err != nil {
			return nil, undecodable(Snappy, err)
		}
		return b, nil
	}
	return nil, io.EOF
}

// undecodable tells of a codec's error without wrapping it: an io.EOF in it would
// be taken for the end of the payload.
func undecodable(codec Codec, err error) error {
	return fmt.Errorf("%w: the %s payload cannot be decompressed: %s", model.ErrInvalidRecord, codec, err.Error())
}
