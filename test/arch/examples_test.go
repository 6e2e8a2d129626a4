package arch

import (
	"strings"
	"testing"
)

// TestExamplesAreOutsiders: an example of a plugin shows what anybody can write,
// and so imports the sdk and libraries alone.
func TestExamplesAreOutsiders(t *testing.T) {
	seen := 0
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		if !strings.HasPrefix(from, "examples/") {
			continue
		}
		seen++
		for _, imported := range append(append(p.Imports, p.TestImports...), p.XTestImports...) {
			if to, ours := strings.CutPrefix(imported, module); ours && !strings.HasPrefix(to, "sdk/") {
				t.Errorf("%s imports %s: an example imports the sdk alone", from, to)
			}
		}
	}
	if seen == 0 {
		t.Error("there is no example: this test looks at nothing")
	}
}
