package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oneGoroutine is the list of packages that `make race` leaves out.
var oneGoroutine = regexp.MustCompile(`(?m)^ONE_GOROUTINE = ((?:.*\\\n)*.*)$`)

// starts are the names of functions that start a goroutine.
var starts = []string{"Go", "Parallel", "RunParallel", "AfterFunc"}

// TestWhatIsNotRaced: the race detector sees nothing where there is one goroutine. A package
// that is left out for that starts no other, nor do its tests.
func TestWhatIsNotRaced(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := oneGoroutine.FindSubmatch(text)
	if found == nil {
		t.Fatal("the Makefile has no list ONE_GOROUTINE")
	}
	packages := strings.Fields(strings.ReplaceAll(string(found[1]), "\\\n", " "))
	if len(packages) < 5 {
		t.Fatalf("%d packages: this test would pass without looking", len(packages))
	}
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join("../..", p, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no files (%v)", p, err)
		}
		for _, file := range files {
			for _, at := range goroutines(t, file) {
				t.Errorf("%s starts a goroutine: take %s off ONE_GOROUTINE in the Makefile", at, p)
			}
		}
	}
}

// goroutines are the places of a file at which one is started.
func goroutines(t *testing.T, file string) (at []string) {
	t.Helper()
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			at = append(at, set.Position(n.Pos()).String())
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(starts, f.Sel.Name) {
				at = append(at, set.Position(n.Pos()).String())
			}
		}
		return true
	})
	return at
}
