package config

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// masked stands where a secret is not shown.
const masked = "********"

// secretFileBytesMax bounds what a ${file:...} reference reads.
const secretFileBytesMax = 64 << 10

func secretName(key string) bool {
	key = squash(key)
	for _, word := range []string{"secret", "password", "passwd", "token", "privatekey", "accesskey", "credential", "apikey"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

// reference is ${data}, ${env:NAME} or ${file:PATH}.
var reference = regexp.MustCompile(`\$\{(data|env:[^}]+|file:[^}]+)\}`)

// maskJSON shows a plugin's section with its secrets left out. A value that is
// only a reference is shown: it is not the secret.
func maskJSON(raw json.RawMessage) string {
	out, err := mapStrings(raw, func(key, value string) (string, error) {
		if secretName(key) && value != "" && reference.ReplaceAllString(value, "") != "" {
			return masked, nil
		}
		return value, nil
	})
	if err != nil {
		return "{}"
	}
	return string(out)
}

// ResolveReferences gives a plugin's section with its references replaced:
// ${data} by the data directory, ${env:NAME} by a variable of the broker's
// environment, ${file:PATH} by a file's content without its last newline. The
// result may hold secrets: it goes to the plugin and nowhere else.
func (c Config) ResolveReferences(section json.RawMessage) (json.RawMessage, error) {
	return mapStrings(section, func(key, value string) (string, error) {
		var failed error
		out := reference.ReplaceAllStringFunc(value, func(ref string) string {
			resolved, err := c.resolve(strings.TrimSuffix(strings.TrimPrefix(ref, "${"), "}"))
			if err != nil && failed == nil {
				failed = fmt.Errorf("%s: %s: %w", key, ref, err)
			}
			return resolved
		})
		return out, failed
	})
}

func (c Config) resolve(ref string) (string, error) {
	kind, what, _ := strings.Cut(ref, ":")
	switch kind {
	case "env":
		value, ok := os.LookupEnv(what)
		if !ok {
			return "", fmt.Errorf("the environment has no %s", what)
		}
		return value, nil
	case "file":
		info, err := os.Stat(what)
		if err != nil {
			return "", fmt.Errorf("read a secret: %w", err)
		}
		if info.Size() > secretFileBytesMax {
			return "", fmt.Errorf("%s is larger than %d bytes and can hardly be a secret", what, secretFileBytesMax)
		}
		content, err := os.ReadFile(what)
		if err != nil {
			return "", fmt.Errorf("read a secret: %w", err)
		}
		return strings.TrimRight(string(content), "\r\n"), nil
	}
	return c.Data, nil
}

// mapStrings rewrites every string of a JSON tree; key is the nearest one above
// it. Keys come out sorted.
func mapStrings(raw json.RawMessage, rewrite func(key, value string) (string, error)) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage(`{}`), nil
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber() // a 64-bit number keeps its digits
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read a plugin's section: %w", err)
	}
	var walk func(key string, node any) (any, error)
	walk = func(key string, node any) (any, error) {
		var err error
		switch n := node.(type) {
		case string:
			return rewrite(key, n)
		case json.Number:
			if out, err := rewrite(key, n.String()); err != nil || out != n.String() {
				return out, err
			}
		case map[string]any:
			for k, v := range n {
				if n[k], err = walk(k, v); err != nil {
					return nil, err
				}
			}
		case []any:
			for i, v := range n {
				if n[i], err = walk(key, v); err != nil {
					return nil, err
				}
			}
		}
		return node, nil
	}
	tree, err := walk("", tree)
	if err != nil {
		return nil, err
	}
	return encodeJSON(tree)
}
