package wire

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// readable is a request that is read without the codec.
type readable interface {
	Read(version int16, body []byte) error
}

// failer is what tests and properties have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// readBoth has the codec write req, and reads it into got, with more behind it, and by
// the codec into want. It returns what was written.
func readBoth(t failer, req kmsg.Request, got readable, want kmsg.Request) []byte {
	t.Helper()
	body := req.AppendTo(nil)
	want.SetVersion(req.GetVersion())
	if err := want.ReadFrom(body); err != nil {
		t.Fatalf("the codec does not read what it wrote: %v", err)
	}
	if err := got.Read(req.GetVersion(), slices.Concat(body, []byte("more"))); err != nil {
		t.Fatalf("version %d: %v", req.GetVersion(), err)
	}
	return body
}

// readAny reads anything: what is read is what the codec reads into want, as same finds,
// and what is refused is nothing that it would write.
func readAny(t *testing.T, version int16, body []byte, got readable, want kmsg.Request, same func()) {
	t.Helper()
	err := got.Read(version, body)
	want.SetVersion(version)
	werr := want.ReadFrom(body)
	switch {
	case err == nil && werr != nil:
		t.Fatalf("version %d: read %+v, the codec says %v", version, got, werr)
	case err == nil:
		same()
	case werr == nil && bytes.HasPrefix(body, want.AppendTo(nil)):
		t.Fatalf("version %d: %v, the codec reads and writes %+v", version, err, want)
	}
}

// nullCase is a body that is read, or refused for a null or a length that means nothing.
type nullCase struct {
	version int16
	body    []byte
	ok      bool
}

func checkNulls(t *testing.T, made func() readable, cases []nullCase) {
	t.Helper()
	for _, c := range cases {
		if err := made().Read(c.version, c.body); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("version %d, %x: %v", c.version, c.body, err)
		}
	}
}
