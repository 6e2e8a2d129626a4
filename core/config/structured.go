package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

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
		Plugin  string          `json:"plugin"`
		Carrier Carrier         `json:"carrier,omitempty"`
		Config  json.RawMessage `json:"config"`
	}
	out := make(map[string]store, len(*f.at))
	for name, s := range *f.at {
		shown := store{Plugin: s.Plugin, Config: json.RawMessage(maskJSON(s.Config))}
		if s.Carrier != CarrierAuto {
			shown.Carrier = s.Carrier
		}
		out[name] = shown
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
	b := storesBuilder{stores: make(map[string]*storeParts)}
	for _, e := range entries {
		name, rest, dotted := strings.Cut(keyOf(e), ".")
		s := b.store(name, lineOf(e.Key))
		if dotted {
			err = s.part(rest, e)
		} else {
			err = s.whole(e)
		}
		if err != nil {
			return err
		}
	}
	out, err := b.build()
	if err != nil {
		return err
	}
	*f.at = out
	return nil
}

// storesBuilder gathers stores, whose parts may be written with dots or nested.
type storesBuilder struct{ stores map[string]*storeParts }

type storeParts struct {
	name    string
	line    int
	plugin  string
	carrier Carrier
	config  map[string]any
}

func (b storesBuilder) store(name string, line int) *storeParts {
	if b.stores[name] == nil {
		b.stores[name] = &storeParts{name: name, line: line, config: make(map[string]any)}
	}
	return b.stores[name]
}

func (b storesBuilder) build() (map[string]Store, error) {
	out := make(map[string]Store, len(b.stores))
	for _, name := range slices.Sorted(maps.Keys(b.stores)) {
		s := b.stores[name]
		if s.plugin == "" {
			return nil, &positioned{s.line, fmt.Sprintf("store %s names no plugin; add plugin: storage-file", name)}
		}
		config, err := encodeJSON(s.config)
		if err != nil {
			return nil, &positioned{s.line, "a plugin's config holds what JSON cannot: " + err.Error()}
		}
		if s.carrier == "" {
			s.carrier = CarrierAuto
		}
		out[name] = Store{Plugin: s.plugin, Carrier: s.carrier, Config: config}
	}
	return out, nil
}

// whole takes a store as a mapping.
func (s *storeParts) whole(entry *ast.MappingValueNode) error {
	parts, err := mappingOf(entry.Value)
	if err != nil {
		return &positioned{lineOf(entry.Key), fmt.Sprintf("store %s is not a mapping; write it as {plugin: storage-file, config: {...}}", s.name)}
	}
	for _, part := range parts {
		if err := s.part(keyOf(part), part); err != nil {
			return err
		}
	}
	return nil
}

// part takes the plugin, the carrier, the config, or one key of the config.
func (s *storeParts) part(key string, e *ast.MappingValueNode) error {
	line := lineOf(e.Key)
	own, inConfig := strings.CutPrefix(key, "config.")
	switch {
	case key == "plugin" && s.plugin != "":
		return &positioned{line, fmt.Sprintf("store %s names its plugin twice", s.name)}
	case key == "plugin":
		s.plugin = scalarText(e.Value)
	case key == "carrier" && s.carrier != "":
		return &positioned{line, fmt.Sprintf("store %s names its carrier twice", s.name)}
	case key == "carrier":
		s.carrier = Carrier(scalarText(e.Value))
		if !slices.Contains(carriers(), string(s.carrier)) {
			return &positioned{line, fmt.Sprintf("store %s: there is no carrier %q; it is one of %s", s.name, s.carrier, strings.Join(carriers(), ", "))}
		}
	case key == "config":
		var raw json.RawMessage
		if err := decodeRaw(e.Value, &raw); err != nil {
			return err
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber() // a 64-bit number keeps its digits
		config := make(map[string]any)
		if err := dec.Decode(&config); err != nil {
			return &positioned{line, "a plugin's config cannot be read: " + err.Error()}
		}
		for k, v := range config {
			if err := s.set(k, v, line); err != nil {
				return err
			}
		}
	case inConfig:
		var value any
		if err := yaml.NodeToValue(e.Value, &value); err != nil {
			return &positioned{line, "a plugin's config cannot be read: " + firstLine(err)}
		}
		return s.set(own, value, line)
	default:
		hint := ""
		if _, err := mappingOf(e.Value); err == nil {
			hint = "; a store's name is made of small letters, digits and dashes, without dots"
		}
		return &positioned{line, fmt.Sprintf("store %s has the unknown key %q; a store has plugin, carrier and config, and the plugin's own keys go below config%s", s.name, key, hint)}
	}
	return nil
}

func (s *storeParts) set(key string, value any, line int) error {
	if _, twice := s.config[key]; twice {
		return &positioned{line, fmt.Sprintf("store %s: %s is set twice", s.name, key)}
	}
	s.config[key] = value
	return nil
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
