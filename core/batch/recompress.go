package batch

import (
	"errors"
	"fmt"
	"io"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// Recompress is for topics that keep batches in a codec of their own
// (compression.type): it returns the batch in data with the same records in that
// codec. data passed Check under the same policy, checked is what that returned, and
// neither is changed; the result is the caller's, or data itself where the codec is
// the right one already.
//
// A batch that outgrows the topic's limits in the new codec is refused as Check
// refuses it. Recompress may be called concurrently and waits its turn as Check does;
// beside what decompression takes it needs the memory of its result.
func Recompress(data []byte, checked Checked, to Codec, p Policy) ([]byte, Checked, error) {
	from := Codec(checked.Info.Attributes & recordbatch.CodecMask)
	if from == to {
		return data, checked, nil
	}
	room := int64(p.MaxBytes)
	if room <= 0 || p.SegmentBytes > 0 && p.SegmentBytes < room {
		room = p.SegmentBytes
	}
	payload, err := transcode(data, checked.Info, to, p.MaxDecompressedBytes, room-recordbatch.HeaderBytes)
	if errors.Is(err, errNoRoom) {
		why := model.ErrMessageTooLarge
		if p.MaxBytes <= 0 || int64(p.MaxBytes) > room {
			why = model.ErrRecordListTooLarge
		}
		return nil, Checked{}, fmt.Errorf("%w: more than %d bytes as %s, the topic's codec", why, room, to)
	}
	if err != nil {
		return nil, Checked{}, fmt.Errorf("recompress %s to %s: %w", from, to, err)
	}
	info := checked.Info
	info.Attributes = info.Attributes&^recordbatch.CodecMask | int16(to)
	out := recordbatch.Build(nil, recordbatch.Header{Info: info, Payload: payload})
	info.Bytes = int32(len(out))
	checked.Info = info
	return out, checked, nil
}

// transcode decompresses and compresses a window at a time. room is what the result
// may take; 0 or less: no limit.
func transcode(data []byte, info recordbatch.Info, to Codec, limit, room int64) ([]byte, error) {
	w, err := walk(data, info, limit)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if w.src == nil {
		// What is not compressed opens no decoder; its encoder needs memory too.
		decoders.gate <- struct{}{}
		defer func() { <-decoders.gate }()
	}
	out := &bounded{room: room}
	enc, err := newEncoder(to, out)
	if err != nil {
		return nil, err
	}
	for {
		if _, err := enc.Write(w.buf); err != nil {
			return nil, err
		}
		if err := w.fill(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return out.bytes, nil
}

// errNoRoom: what was written is more than there is room for.
var errNoRoom = errors.New("no room")

// bounded keeps what is written, up to a limit.
type bounded struct {
	bytes []byte
	room  int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.room > 0 && int64(len(b.bytes)+len(p)) > b.room {
		return 0, errNoRoom
	}
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}
