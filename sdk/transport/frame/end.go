package frame

import (
	"errors"
	"hash/crc32"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/brokerd/brokerd/sdk/transport"
)

// The body of an end: one byte for the class of the reason, and a sentence in UTF-8. In
// the place of a hello it is a refusal.
const endBytesMax = 1 + 512

// endClasses are the numbers of classes in an end. What is not here is 0.
var endClasses = []error{transport.ErrClosed, transport.ErrRetry, transport.ErrDenied, transport.ErrOther, transport.ErrInvalid}

// encodeEnd returns an end as a frame.
func encodeEnd(reason error) []byte {
	class, sentence := byte(0), ""
	for i, c := range endClasses {
		if errors.Is(reason, c) {
			class = byte(i)
			break
		}
	}
	var e *transport.Error
	if errors.As(reason, &e) {
		sentence = e.Message
	} else if reason != nil {
		sentence = reason.Error()
	}
	sentence = strings.ToValidUTF8(sentence, "\uFFFD")
	for i := min(len(sentence), endBytesMax-1); len(sentence) >= endBytesMax; i-- {
		if utf8.RuneStart(sentence[i]) {
			sentence = sentence[:i]
		}
	}
	b := make([]byte, headerBytes, headerBytes+1+len(sentence))
	b = append(append(b, class), sentence...)
	seal(b, kindEnd)
	return b
}

// parseEnd reads the body of an end. What it says is from somebody else: nothing in it can
// pass for more than one line.
func parseEnd(b []byte) *transport.Error {
	class, sentence := transport.ErrClosed, ""
	if len(b) > 0 {
		if int(b[0]) < len(endClasses) {
			class = endClasses[b[0]]
		}
		sentence = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return utf8.RuneError
			}
			return r
		}, strings.ToValidUTF8(string(b[1:]), "\uFFFD"))
	}
	if sentence == "" {
		return &transport.Error{Class: class, Message: "the peer has closed the link"}
	}
	return &transport.Error{Class: class, Message: "the peer says: " + sentence}
}

// seal writes the header of a small frame before its body, which is summed always.
func seal(b []byte, k kind) {
	body := b[headerBytes:]
	header{kind: k, length: len(body), summed: true, sum: crc32.Checksum(body, castagnoli)}.put(b)
}
