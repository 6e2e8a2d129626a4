package transporttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
)

const (
	// wordBytes is the smallest message that tells its tag.
	wordBytes = 8
	// blockBytes is how much of a message follows from its tag and place at once.
	blockBytes = 4 << 10
	// noiseBytes is of what blocks are cut.
	noiseBytes = 64 << 10
)

// noise is what messages are made of; it is always the same.
var noise = sync.OnceValue(func() []byte {
	data := make([]byte, 0, noiseBytes+blockBytes)
	for rng := rand.New(rand.NewPCG(1, 2)); len(data) < noiseBytes+blockBytes; {
		data = binary.LittleEndian.AppendUint64(data, rng.Uint64())
	}
	return data
})

// block is what the message of a tag has at the nth place, but for the tag in front.
func block(tag uint64, n int) []byte {
	at := (tag*0x9E3779B97F4A7C15 + uint64(n)*0xC2B2AE3D27D4EB4F) >> 32 % noiseBytes
	return noise()[at : at+blockBytes]
}

// message is the content of the message of a tag: the tag, and what follows from it.
func message(tag uint64, n int) []byte {
	data := make([]byte, n)
	for i := 0; i*blockBytes < n; i++ {
		copy(data[i*blockBytes:], block(tag, i))
	}
	var head [wordBytes]byte
	binary.LittleEndian.PutUint64(head[:], tag)
	copy(data, head[:])
	return data
}

// tagOf says which message this is the beginning of, if it is long enough to tell.
func tagOf(data []byte) string {
	if len(data) < wordBytes {
		return "?"
	}
	return fmt.Sprint(binary.LittleEndian.Uint64(data))
}

// differs says how got is not the message of the tag and size, or returns "".
func differs(got []byte, tag uint64, n int) string {
	same := alike(got, tag)
	if same == n && len(got) == n {
		return ""
	}
	same = min(same, n)
	what := fmt.Sprintf("message %d of %d bytes is due, and %d bytes came", tag, n, len(got))
	if same < wordBytes && len(got) >= wordBytes && n >= wordBytes {
		return what + ", of a message that begins as number " + tagOf(got) + " does: one was lost, repeated or overtaken, or is not whole"
	}
	return fmt.Sprintf("%s, of which %d are as they were sent", what, same)
}

// alike is how many bytes from the first are those of the message of the tag.
func alike(got []byte, tag uint64) int {
	for at := 0; at < len(got); at += blockBytes {
		have := got[at:min(at+blockBytes, len(got))]
		want := block(tag, at/blockBytes)[:len(have)]
		if at == 0 {
			want = message(tag, len(have))
		}
		if !bytes.Equal(have, want) {
			for i := range have {
				if have[i] != want[i] {
					return at + i
				}
			}
		}
	}
	return len(got)
}
