package config

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-1": -1, "1024": 1024, "1KiB": 1024, "512MiB": 512 << 20, "1.5 GiB": 3 << 29, "2kB": 2000, "3MB": 3e6, "7B": 7,
	} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-2", "MiB", "-1MiB", "9999999TiB", "1e99GiB", "NaNKiB", "1 furlong"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", text, got)
		}
	}
}

func TestBytesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Min(0).Draw(t, "n")
		if got, err := ParseBytes(FormatBytes(n)); err != nil || got != n {
			t.Fatalf("%d became %q and then %d, %v", n, FormatBytes(n), got, err)
		}
	})
}

// What `config show` prints can be put into a file as it is.
func TestShownValuesAreAccepted(t *testing.T) {
	before, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	var all []Override
	for _, v := range before.Values {
		if v.Value != "" {
			all = append(all, Override{"--set", v.Name, v.Value})
		}
	}
	after, err := Load(Sources{Overrides: all})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range after.Values {
		if v.Value != before.Values[i].Value {
			t.Errorf("%s: %q became %q", v.Name, before.Values[i].Value, v.Value)
		}
	}
}

func TestAdvertise(t *testing.T) {
	for _, tc := range []struct {
		listeners, advertised string
		want                  string // of the first listener, bound to port 7
		warning               string
	}{
		{"PLAINTEXT://127.0.0.1:0", "", "PLAINTEXT://127.0.0.1:7", ""},
		{"PLAINTEXT://:9092", "", "PLAINTEXT://box:9092", "the name of this machine"},
		{"PLAINTEXT://0.0.0.0:0", "", "PLAINTEXT://box:7", "the name of this machine"},
		{"PLAINTEXT://[::]:9092", "PLAINTEXT://b.example.com:1", "PLAINTEXT://b.example.com:1", ""},
		{"PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://localhost:9092", "PLAINTEXT://localhost:9092", "their own machine"},
		{"PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092", "their own machine"},
		{"PLAINTEXT://10.0.0.1:9092", "", "PLAINTEXT://10.0.0.1:9092", ""},
	} {
		t.Run(tc.listeners+" "+tc.advertised, func(t *testing.T) {
			l, err := Load(Sources{Overrides: []Override{{"-l", "listeners", tc.listeners}, {"-a", "advertised.listeners", tc.advertised}}})
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Advertise(l.Listeners[0], 7, "box").String(); got != tc.want {
				t.Errorf("advertises %s, want %s", got, tc.want)
			}
			got := strings.Join(l.ReachWarnings("box"), "\n")
			if (tc.warning == "") != (got == "") || !strings.Contains(got, tc.warning) {
				t.Errorf("warns %q, want %q", got, tc.warning)
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"node.id: 1", "log: {level: x}", "storage: {stores: {a: {plugin: b, config: {c: [1]}}}}", "a: &b c\nd: *b", "? x\n: y", "- 1", "!!binary x: 1", "<<: {a: 1}", "x: |\n  a"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		l, err := Load(Sources{File: "f.yaml", Content: content})
		if err == nil && l.Validate() != nil {
			t.Errorf("loaded what is not valid: %v", l.Validate())
		}
	})
}

func TestMinutes(t *testing.T) {
	for _, tc := range []struct {
		text  string
		want  time.Duration
		shown string
	}{
		{"10080", 7 * 24 * time.Hour, "10080"},
		{"7d", 7 * 24 * time.Hour, "10080"},
		{"90s", 90 * time.Second, "1m30s"},
		{"1500ms", 1500 * time.Millisecond, "1.5s"},
		{"9223372036854775807", math.MaxInt64 / time.Minute * time.Minute, "153722867"},
	} {
		var d time.Duration
		f := minutesField{&d}
		if err := f.parse(tc.text); err != nil || d != tc.want || f.format() != tc.shown {
			t.Errorf("%s: %s, shown as %s (%v)", tc.text, d, f.format(), err)
		}
		if err := f.parse(f.format()); err != nil || d != tc.want {
			t.Errorf("%s: what is shown is read as %s (%v)", tc.text, d, err)
		}
	}
}
