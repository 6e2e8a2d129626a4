package config

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// field is one place in a Config, with the text form of what it holds.
type field interface {
	parse(text string) error
	format() string
}

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64
}

type intField[T integer] struct{ at *T }

func (f intField[T]) parse(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || int64(T(n)) != n {
		return fmt.Errorf("%q is not a whole number in range", text)
	}
	*f.at = T(n)
	return nil
}

func (f intField[T]) format() string { return strconv.FormatInt(int64(*f.at), 10) }

type boolField struct{ at *bool }

func (f boolField) parse(text string) error {
	switch text {
	case "true":
		*f.at = true
	case "false":
		*f.at = false
	default:
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return nil
}

func (f boolField) format() string { return strconv.FormatBool(*f.at) }

type stringField[T ~string] struct{ at *T }

func (f stringField[T]) parse(text string) error { *f.at = T(text); return nil }
func (f stringField[T]) format() string          { return string(*f.at) }

// choiceField holds one of a few words.
type choiceField[T ~string] struct {
	at      *T
	choices []string
}

func (f choiceField[T]) parse(text string) error {
	if !slices.Contains(f.choices, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(f.choices, ", "))
	}
	*f.at = T(text)
	return nil
}

func (f choiceField[T]) format() string { return string(*f.at) }

type listField struct{ at *[]string }

func (f listField) parse(text string) error { *f.at = splitList(text); return nil }
func (f listField) format() string          { return strings.Join(*f.at, ",") }

// splitList reads Kafka's list form: values between commas.
func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

type listenersField struct{ at *[]Listener }

func (f listenersField) parse(text string) error {
	var out []Listener
	for _, part := range splitList(text) {
		l, err := parseListener(part)
		if err != nil {
			return err
		}
		out = append(out, l)
	}
	*f.at = out
	return nil
}

func (f listenersField) format() string {
	parts := make([]string, 0, len(*f.at))
	for _, l := range *f.at {
		parts = append(parts, l.String())
	}
	return strings.Join(parts, ",")
}

// pairsField holds NAME:value pairs between commas.
type pairsField struct{ at *map[string]string }

func (f pairsField) parse(text string) error {
	out := make(map[string]string)
	for _, part := range splitList(text) {
		name, value, ok := strings.Cut(part, ":")
		if !ok || name == "" || value == "" {
			return fmt.Errorf("%q is not a pair; write it as NAME:value", part)
		}
		out[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	*f.at = out
	return nil
}

func (f pairsField) format() string {
	parts := make([]string, 0, len(*f.at))
	for name, value := range *f.at {
		parts = append(parts, name+":"+value)
	}
	sort.Strings(parts)
	return strings.Join(parts, ",")
}

// durationField holds a time in milliseconds, as Kafka's names ending in .ms
// do, or with a unit. Whole milliseconds; -1 where a limit may be absent.
type durationField struct{ at *time.Duration }

func (f durationField) parse(text string) error {
	ms, err := parseMillis(text)
	if err != nil {
		return err
	}
	if ms > math.MaxInt64/int64(time.Millisecond) {
		ms = math.MaxInt64 / int64(time.Millisecond) // 292 years are for ever
	}
	*f.at = time.Duration(ms) * time.Millisecond
	return nil
}

func (f durationField) format() string { return strconv.FormatInt(f.at.Milliseconds(), 10) }

// minutesField holds a time in minutes, as Kafka's names ending in .minutes do, or
// with a unit. It is shown in minutes, or with a unit where that would round it.
type minutesField struct{ at *time.Duration }

func (f minutesField) parse(text string) error {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 {
			return fmt.Errorf("%q is negative", text)
		}
		*f.at = time.Duration(min(n, math.MaxInt64/int64(time.Minute))) * time.Minute
		return nil
	}
	return durationField(f).parse(text)
}

func (f minutesField) format() string {
	if *f.at%time.Minute != 0 {
		return f.at.String()
	}
	return strconv.FormatInt(int64(*f.at/time.Minute), 10)
}

// parseMillis reads 1500, 1500ms, 1.5s, 10m, 168h or 7d.
func parseMillis(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < -1 {
			return 0, fmt.Errorf("%q is below -1", text)
		}
		return n, nil
	}
	goText := text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration; write milliseconds, or a number with ms, s, m, h or d", text)
		}
		goText = strconv.FormatFloat(n*24, 'f', -1, 64) + "h"
	}
	d, err := time.ParseDuration(goText)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration; write milliseconds, or a number with ms, s, m, h or d", text)
	}
	return d.Milliseconds(), nil
}

// bytesField holds a size in bytes. With units it is shown in them.
type bytesField[T integer] struct {
	at    *T
	units bool
}

func (f bytesField[T]) parse(text string) error {
	n, err := ParseBytes(text)
	if err != nil {
		return err
	}
	if int64(T(n)) != n {
		return fmt.Errorf("%q is too large", text)
	}
	*f.at = T(n)
	return nil
}

func (f bytesField[T]) format() string {
	n := int64(*f.at)
	if f.units {
		return FormatBytes(n)
	}
	return strconv.FormatInt(n, 10)
}

var byteUnits = []struct {
	suffix string
	size   int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// ParseBytes reads a size: a whole number of bytes, or a number with a unit
// (KiB, MiB, GiB, TiB in powers of 1024; kB, MB, GB, TB in powers of 1000). -1
// stands for no limit.
func ParseBytes(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < -1 {
			return 0, fmt.Errorf("%q is below -1", text)
		}
		return n, nil
	}
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(x >= 0 && x*float64(u.size) < math.MaxInt64) { // NaN too
			break
		}
		return int64(x * float64(u.size)), nil
	}
	return 0, fmt.Errorf("%q is not a size; write bytes, or a number with KiB, MiB, GiB or TiB", text)
}

// FormatBytes writes a size in the largest binary unit that divides it.
func FormatBytes(n int64) string {
	for _, u := range byteUnits[:4] {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
