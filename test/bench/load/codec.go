package load

import (
	"bytes"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Codec is how batches are compressed, by the name that Kafka gives it.
type Codec string

// The codecs.
const (
	None Codec = "none"
	LZ4  Codec = "lz4"
	Zstd Codec = "zstd"
)

func (c Codec) franz() (kgo.CompressionCodec, error) {
	switch c {
	case None, "":
		return kgo.NoCompression(), nil
	case LZ4:
		return kgo.Lz4Compression(), nil
	case Zstd:
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("codec %q: none, lz4 and zstd are known", c)
}

// Validate says whether it is one of those above.
func (c Codec) Validate() error {
	_, err := c.franz()
	return err
}

// compress is what becomes of a batch's records, and the batch's attributes.
func (c Codec) compress(records []byte) ([]byte, int16, error) {
	codec, err := c.franz()
	if err != nil || c == None || c == "" {
		return records, 0, err
	}
	by, err := kgo.DefaultCompressor(codec)
	if err != nil {
		return nil, 0, err
	}
	out, kind := by.Compress(new(bytes.Buffer), records)
	return out, int16(kind), nil
}
