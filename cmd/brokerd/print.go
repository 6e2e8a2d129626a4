package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// printer returns the function that writes one record.
func (s *consuming) printer(out *bufio.Writer) (func(*kgo.Record) error, error) {
	if s.output == "json" {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		return func(r *kgo.Record) error { return enc.Encode(newShownRecord(r)) }, nil
	}
	parts, err := parseFormat(s.format)
	if err != nil {
		return nil, err
	}
	var line []byte
	return func(r *kgo.Record) error {
		line = line[:0]
		for _, p := range parts {
			line = p.append(line, r)
		}
		_, err := out.Write(line)
		return err
	}, nil
}

// shownRecord is a record as JSON. Text stays text; other bytes are base64.
type shownRecord struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Offset    int64         `json:"offset"`
	Timestamp int64         `json:"timestamp"`
	Key       *string       `json:"key"`
	KeyBytes  string        `json:"key_base64,omitempty"`
	Value     *string       `json:"value"`
	ValueB64  string        `json:"value_base64,omitempty"`
	Headers   []shownHeader `json:"headers,omitempty"`
}

type shownHeader struct {
	Key      string  `json:"key"`
	Value    *string `json:"value"`
	ValueB64 string  `json:"value_base64,omitempty"`
}

func newShownRecord(r *kgo.Record) shownRecord {
	out := shownRecord{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli()}
	out.Key, out.KeyBytes = textOrBase64(r.Key)
	out.Value, out.ValueB64 = textOrBase64(r.Value)
	for _, h := range r.Headers {
		shown := shownHeader{Key: h.Key}
		shown.Value, shown.ValueB64 = textOrBase64(h.Value)
		out.Headers = append(out.Headers, shown)
	}
	return out
}

func textOrBase64(b []byte) (text *string, encoded string) {
	if b == nil {
		return nil, ""
	}
	if !utf8.Valid(b) {
		return nil, base64.StdEncoding.EncodeToString(b)
	}
	s := string(b)
	return &s, ""
}

// formatPart is text, or, where verb is set, a part of the record.
type formatPart struct {
	text string
	verb byte
}

func (p formatPart) append(b []byte, r *kgo.Record) []byte {
	switch p.verb {
	case 't':
		return append(b, r.Topic...)
	case 'p':
		return strconv.AppendInt(b, int64(r.Partition), 10)
	case 'o':
		return strconv.AppendInt(b, r.Offset, 10)
	case 'T':
		return strconv.AppendInt(b, r.Timestamp.UnixMilli(), 10)
	case 'k':
		return append(b, r.Key...)
	case 'v':
		return append(b, r.Value...)
	case 'h':
		for i, h := range r.Headers {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, h.Key...), '='), h.Value...)
		}
		return b
	}
	return append(b, p.text...)
}

func parseFormat(format string) ([]formatPart, error) {
	var out []formatPart
	for rest := format; rest != ""; {
		i := strings.IndexAny(rest, `%\`)
		if i < 0 {
			return append(out, formatPart{text: rest}), nil
		}
		if i > 0 {
			out = append(out, formatPart{text: rest[:i]})
		}
		if i+1 == len(rest) {
			return nil, &usageError{fmt.Sprintf("the format %q ends in a lone %c", format, rest[i])}
		}
		pair := rest[i : i+2]
		rest = rest[i+2:]
		switch pair {
		case `%%`, `\\`:
			out = append(out, formatPart{text: pair[1:]})
		case `\n`:
			out = append(out, formatPart{text: "\n"})
		case `\t`:
			out = append(out, formatPart{text: "\t"})
		case `\0`:
			out = append(out, formatPart{text: "\x00"})
		case `%t`, `%p`, `%o`, `%T`, `%k`, `%v`, `%h`:
			out = append(out, formatPart{verb: pair[1]})
		default:
			return nil, &usageError{fmt.Sprintf("the format %q has the unknown %s; use %%t %%p %%o %%T %%k %%v %%h, \\n or \\t", format, pair)}
		}
	}
	return out, nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
