package config

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// structured is a field that is a tree and not one value. Its text form is
// JSON, and any YAML is read.
type structured interface {
	field
	parseNode(node ast.Node) error
}

// positioned is an error at a line of the file that is being read.
type positioned struct {
	line int
	msg  string
}

func (e *positioned) Error() string { return e.msg }

// rawField carries a plugin's own section, as JSON.
type rawField struct{ at *json.RawMessage }

func (f rawField) parse(text string) error       { return parseTree(text, f) }
func (f rawField) format() string                { return maskJSON(*f.at) }
func (f rawField) parseNode(node ast.Node) error { return decodeRaw(node, f.at) }

// storesField holds stores by name.
type storesField struct{ at *map[string]Store }

func (f storesField) parse(text string) error { return parseTree(text, f) }

func (f storesField) format() string {
	type store struct {
		Plugin string          `json:"plugin"`
		Config json.RawMessage `json:"config"`
	}
	out := make(map[string]store, len(*f.at))
	for name, s := range *f.at {
		out[name] = store{Plugin: s.Plugin, Config: json.RawMessage(maskJSON(s.Config))}
	}
	text, err := encodeJSON(out)
	if err != nil {
		return "{}"
	}
	return string(text)
}

func (f storesField) parseNode(node ast.Node) error {
	entries, err := mappingOf(node)
	if err != nil {
		return err
	}
	out := make(map[string]Store, len(entries))
	for _, e := range entries {
		s, err := parseStore(e)
		if err != nil {
			return err
		}
		out[keyOf(e)] = s
	}
	*f.at = out
	return nil
}

func parseStore(entry *ast.MappingValueNode) (Store, error) {
	name := keyOf(entry)
	s := Store{Config: json.RawMessage(`{}`)}
	parts, err := mappingOf(entry.Value)
	if err != nil {
		return s, &positioned{lineOf(entry.Key), fmt.Sprintf("store %s is not a mapping; write it as {plugin: storage-file, config: {...}}", name)}
	}
	for _, part := range parts {
		switch key := keyOf(part); key {
		case "plugin":
			s.Plugin = scalarText(part.Value)
		case "config":
			if err := decodeRaw(part.Value, &s.Config); err != nil {
				return s, err
			}
		default:
			return s, &positioned{lineOf(part.Key), fmt.Sprintf("store %s has the unknown key %q; a store has plugin and config, and the plugin's own keys go below config", name, key)}
		}
	}
	if s.Plugin == "" {
		return s, &positioned{lineOf(entry.Key), fmt.Sprintf("store %s names no plugin; add plugin: storage-file", name)}
	}
	return s, nil
}

// decodeRaw makes a mapping into JSON with sorted keys, whose case is kept.
func decodeRaw(node ast.Node, at *json.RawMessage) error {
	if node.Type() == ast.NullType {
		*at = json.RawMessage(`{}`)
		return nil
	}
	if _, err := mappingOf(node); err != nil {
		return &positioned{lineOf(node), "a plugin's config is a mapping of its keys"}
	}
	tree := map[string]any{}
	if err := yaml.NodeToValue(node, &tree); err != nil {
		return &positioned{lineOf(node), "a plugin's config cannot be read: " + firstLine(err)}
	}
	text, err := encodeJSON(tree)
	if err != nil {
		return &positioned{lineOf(node), "a plugin's config holds what JSON cannot: " + err.Error()}
	}
	*at = text
	return nil
}

// parseTree reads text as YAML for a structured field.
func parseTree(text string, into structured) error {
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		return fmt.Errorf("not YAML: %s", firstLine(err))
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return fmt.Errorf("it is empty; write a mapping, or {} for none")
	}
	return into.parseNode(file.Docs[0].Body)
}

// encodeJSON writes a tree with sorted keys.
func encodeJSON(tree any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tree); err != nil {
		return nil, fmt.Errorf("encode a plugin's section: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
