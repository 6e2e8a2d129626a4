package transporttest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestSentencesAreTheContracts: what the kit says that the contract says, it says.
func TestSentencesAreTheContracts(t *testing.T) {
	contract := comments(t, "../doc.go", "../transport.go", "../errors.go", "../provider.go")
	for name, said := range sentences(t) {
		if !strings.Contains(contract, said) {
			t.Errorf("%s is not in the contract: %q", name, said)
		}
	}
}

// TestEverySentenceIsChecked: some case quotes it.
func TestEverySentenceIsChecked(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		if file == "sentences.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(data)
	}
	for name := range sentences(t) {
		if !strings.Contains(code.String(), name) {
			t.Errorf("no case checks %s", name)
		}
	}
}

// comments returns the text of all comments, with single spaces.
func comments(t *testing.T, files ...string) string {
	t.Helper()
	var words []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range parsed.Comments {
			words = append(words, strings.Fields(group.Text())...)
		}
	}
	return strings.Join(words, " ")
}

// sentences returns the constants of sentences.go by name.
func sentences(t *testing.T) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "sentences.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i, name := range spec.Names {
				text, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				found[name.Name] = text
			}
		}
		return true
	})
	if len(found) < 30 {
		t.Fatalf("%d sentences were found", len(found))
	}
	return found
}
