package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// found is a value as the file has it.
type found struct {
	text string
	node ast.Node // of a structured setting
	line int
}

// reader flattens one file to settings by name, and collects what is wrong.
type reader struct {
	file     string
	table    map[string]setting // coarser names included
	values   map[string]found
	problems []error
	warnings []string
}

// at is a place in the file, as editors read it.
func (r *reader) at(line int) string { return fmt.Sprintf("%s:%d", r.file, line) }

func (r *reader) fail(line int, format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s: %s", r.at(line), fmt.Sprintf(format, args...)))
}

// read takes the whole file.
func (r *reader) read(content []byte) {
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		var syntax yaml.Error
		line := 1
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			line = syntax.GetToken().Position.Line
		}
		r.fail(line, "not valid YAML: %s", firstLine(err))
		return
	}
	if len(file.Docs) > 1 && file.Docs[1].Body != nil {
		r.fail(lineOf(file.Docs[1].Body), "a second document begins here; one file is one document")
		return
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil || file.Docs[0].Body.Type() == ast.CommentType {
		return
	}
	entries, err := mappingOf(file.Docs[0].Body)
	if err != nil {
		r.fail(lineOf(file.Docs[0].Body), "the file is not a mapping; write settings as name: value")
		return
	}
	r.walk("", entries)
}

func (r *reader) walk(prefix string, entries []*ast.MappingValueNode) {
	for _, e := range entries {
		name := prefix + keyOf(e)
		line := lineOf(e.Key)
		s, known := r.table[name]
		switch {
		case known:
			r.take(name, s, e)
		case strings.HasPrefix(name, storesPrefix):
			r.takeStore(strings.TrimPrefix(name, storesPrefix), e)
		case r.section(name):
			inner, err := mappingOf(e.Value)
			if err != nil {
				r.fail(line, "%s is a section and has no value of its own; write its keys below it", name)
				continue
			}
			r.walk(name+".", inner)
		default:
			r.unknown(name, line)
		}
	}
}

// take keeps one value of a known setting.
func (r *reader) take(name string, s setting, e *ast.MappingValueNode) {
	line := lineOf(e.Key)
	if before, twice := r.values[name]; twice {
		r.fail(line, "%s is set twice, first at line %d; keep one", name, before.line)
		return
	}
	var c Config
	if _, tree := s.field(&c).(structured); tree {
		r.values[name] = found{node: e.Value, line: line}
		return
	}
	text, err := textOf(e.Value)
	if err != nil {
		r.fail(line, "%s %s", name, err)
		return
	}
	r.values[name] = found{text: text, line: line}
}

const (
	storesName   = "storage.stores"
	storesPrefix = storesName + "."
)

// takeStore keeps a store, or a part of one, whose key was written with dots, as
// if it stood below storage.stores.
func (r *reader) takeStore(key string, e *ast.MappingValueNode) {
	renamed := *e
	renamed.Key = &ast.StringNode{BaseNode: &ast.BaseNode{}, Token: e.Key.GetToken(), Value: key}
	all := []*ast.MappingValueNode{&renamed}
	before, more := r.values[storesName]
	if more {
		entries, err := mappingOf(before.node)
		if err != nil {
			r.fail(lineOf(e.Key), "%s is set twice, first at line %d; keep one", storesName, before.line)
			return
		}
		all = slices.Concat(entries, all)
	} else {
		before.line = lineOf(e.Key)
	}
	before.node = ast.Mapping(e.Key.GetToken(), false, all...)
	r.values[storesName] = before
}

func (r *reader) section(name string) bool {
	for known := range r.table {
		if strings.HasPrefix(known, name+".") {
			return true
		}
	}
	return false
}

// unknown tells of a key that is not ours: known to Kafka, or a slip.
func (r *reader) unknown(name string, line int) {
	if k, ok := kafkaKey(name); ok {
		if k.refuse {
			r.fail(line, "%s cannot be used: %s", name, k.reason)
		} else {
			r.warnings = append(r.warnings, fmt.Sprintf("%s: %s has no effect: %s", r.at(line), name, k.reason))
		}
		return
	}
	if near := suggest(name, r.names()); near != "" {
		r.fail(line, "unknown key %q; did you mean %q?", name, near)
		return
	}
	r.fail(line, "unknown key %q; `brokerd config show` lists every key", name)
}

func (r *reader) names() []string {
	out := make([]string, 0, len(r.table))
	for name := range r.table {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// textOf is the text form of a scalar, a list of scalars or a mapping of
// scalars.
func textOf(node ast.Node) (string, error) {
	switch n := node.(type) {
	case *ast.NullNode:
		return "", errors.New(`has no value; give it one (or "") or take the line away`)
	case *ast.SequenceNode:
		parts := make([]string, 0, len(n.Values))
		for _, v := range n.Values {
			if !plain(v) {
				return "", errors.New("is a list of more than plain values")
			}
			parts = append(parts, scalarText(v))
		}
		return strings.Join(parts, ","), nil
	case *ast.MappingNode, *ast.MappingValueNode:
		entries, err := mappingOf(n)
		if err != nil {
			return "", err
		}
		parts := make([]string, 0, len(entries))
		for _, e := range entries {
			if !plain(e.Value) {
				return "", errors.New("is a mapping of more than plain values")
			}
			parts = append(parts, keyOf(e)+":"+scalarText(e.Value))
		}
		return strings.Join(parts, ","), nil
	}
	if plain(node) {
		return scalarText(node), nil
	}
	return "", fmt.Errorf("is written with %s, which is not read here; write the value itself", strings.ToLower(node.Type().String()))
}

// plain reports whether a node is a value itself: anchors and tags are not.
func plain(node ast.Node) bool {
	switch node.Type() {
	case ast.StringType, ast.LiteralType, ast.IntegerType, ast.FloatType, ast.BoolType, ast.InfinityType, ast.NanType:
		return true
	}
	return false
}

// scalarText is a scalar as it was written, without quotes.
func scalarText(node ast.Node) string {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value)
	case *ast.NullNode:
		return ""
	}
	return node.GetToken().Value
}

// mappingOf gives the entries of a mapping.
func mappingOf(node ast.Node) ([]*ast.MappingValueNode, error) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	}
	return nil, errors.New("not a mapping")
}

func keyOf(e *ast.MappingValueNode) string { return scalarText(e.Key) }

func lineOf(node ast.Node) int {
	if t := node.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// firstLine is the sentence of a YAML error without its picture of the source.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if strings.HasPrefix(line, "[") {
		if _, rest, ok := strings.Cut(line, "] "); ok {
			return rest
		}
	}
	return line
}
