package arch

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// architecture is the page whose table lists the packages.
const architecture = "../../docs/architecture.md"

// packageRow is a row of that table: package, what it owns, what it never does.
var packageRow = regexp.MustCompile("(?m)^\\| `((?:core|sdk)/[^`]+)` \\| ([^|]+) \\| ([^|]+) \\|$")

// TestArchitectureListsPackages: every package of core and sdk has a row in the
// document, and every row a package.
func TestArchitectureListsPackages(t *testing.T) {
	page, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, row := range packageRow.FindAllStringSubmatch(string(page), -1) {
		if listed[row[1]] {
			t.Errorf("%s has two rows", row[1])
		}
		listed[row[1]] = true
	}
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if !strings.HasPrefix(name, "core/") && !strings.HasPrefix(name, "sdk/") {
			continue
		}
		if !listed[name] {
			t.Errorf("%s has no row in docs/architecture.md: say there what it owns and what it never does", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("docs/architecture.md has a row for %s, which is no package", name)
	}
}
