package command

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/controller"
)

// TestEveryOpIsListed: a type of core/controller that has the method op has a name here.
func TestEveryOpIsListed(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			method, ok := d.(*ast.FuncDecl)
			if !ok || method.Recv == nil || method.Name.Name != "op" {
				continue
			}
			receiver, ok := method.Recv.List[0].Type.(*ast.Ident)
			if !ok {
				t.Errorf("an operation of %s is not a plain value", file)
				continue
			}
			want = append(want, receiver.Name)
		}
	}
	var got []string
	for _, op := range ops {
		got = append(got, opName(op))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) < 9 {
		t.Errorf("the operations of core/controller are\n%v\nand have an encoding:\n%v", want, got)
	}
}

// TestEverySentinelIsListed: an error of core/model crosses as itself.
func TestEverySentinelIsListed(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../model/errors.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i, name := range spec.Names {
				if call, ok := spec.Values[i].(*ast.CallExpr); ok && strings.HasPrefix(name.Name, "Err") && len(call.Args) == 1 {
					want = append(want, name.Name+" "+strings.Trim(call.Args[0].(*ast.BasicLit).Value, `"`))
				}
			}
		}
		return true
	})
	var got []string
	for _, s := range sentinels {
		got = append(got, s.name+" "+s.err.Error()) // the text sees that each is the one that it is called
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) < 60 {
		t.Errorf("the sentinels of core/model are\n%v\nand have a name here:\n%v", want, got)
	}
}

// TestEveryTypeCanCross: within operations and answers are only types that are encoded.
func TestEveryTypeCanCross(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, op := range ops {
		canCross(t, reflect.TypeOf(op), opName(op), seen)
	}
	canCross(t, reflect.TypeFor[controller.Answer](), "Answer", seen)
	if len(seen) < 10 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}

func canCross(t *testing.T, typ reflect.Type, path string, seen map[reflect.Type]bool) {
	t.Helper()
	if seen[typ] {
		return
	}
	seen[typ] = true
	switch typ.Kind() {
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
	case reflect.Array:
		if typ.Elem().Kind() != reflect.Uint8 {
			t.Errorf("%s is a %s, which is not encoded", path, typ)
		}
	case reflect.Slice, reflect.Pointer:
		canCross(t, typ.Elem(), path, seen)
	case reflect.Map:
		if _, err := mapKey(reflect.Zero(typ.Key())); err != nil {
			t.Errorf("%s is a %s: %v", path, typ, err)
		}
		canCross(t, typ.Elem(), path, seen)
	case reflect.Struct:
		if typ.NumField() > 64 {
			t.Errorf("%s has %d fields; at most 64 are told apart", path, typ.NumField())
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() || f.Anonymous {
				t.Errorf("%s.%s does not cross", path, f.Name)
				continue
			}
			canCross(t, f.Type, path+"."+f.Name, seen)
		}
	default:
		if typ != errorType {
			t.Errorf("%s is a %s, which is not encoded", path, typ)
		}
	}
}
