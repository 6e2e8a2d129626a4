package transporttest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/brokerd/brokerd/sdk/transport"
)

func providerCases() []Case {
	return []Case{
		{Name: "provider-info", About: "a plugin says what it is, and what its settings are", Needs: Needs{Provider: true}, run: providerInfo},
		{Name: "provider-open", About: "a plugin opens with good settings, and refuses others by name", Needs: Needs{Provider: true}, run: providerOpen},
	}
}

func providerInfo(e *env) {
	info := e.target.Provider.Info()
	if info.Name == "" || info.Version == "" || info.About == "" {
		e.failf(saidInfo, "Info leaves something out: %+v", info)
	}
	seen := map[string]bool{}
	for _, s := range info.Settings {
		if s.Name == "" || s.About == "" || seen[s.Name] {
			e.failf(saidInfo, "the setting %q has no name, or is told twice, or not what it is about", s.Name)
		}
		seen[s.Name] = true
	}
}

func providerOpen(e *env) {
	open := func(settings []byte) (*node, error) {
		ctx, cancel := e.within()
		defer cancel()
		t, err := e.target.Provider.Open(ctx, transport.Config{Settings: settings, Identity: identity(cluster, 1)})
		if err != nil {
			return nil, err
		}
		n := &node{Transport: t, e: e, id: identity(cluster, 1)}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.nodes = append(e.nodes, n)
		return n, nil
	}
	const unknown = "no_such_setting"
	for what, settings := range map[string][]byte{
		"a key that is unknown": withSetting(e.target.Settings, unknown),
		"a key of wrong case":   withSetting(e.target.Settings, strings.ToUpper(unknown)),
		"a list":                []byte(`["settings"]`),
		"half of an object":     []byte(`{"a":`),
		"no JSON":               []byte("listen: 127.0.0.1"),
		"two objects":           append(bytes.Clone(e.target.Settings), "{}"...),
	} {
		_, err := open(settings)
		e.wantClass(saidStrictly, err, "open with "+what, transport.ErrInvalid)
		if bytes.Contains(settings, []byte(unknown)) && !strings.Contains(err.Error(), unknown) {
			e.failf(saidStrictly, "an unknown key is refused, and not named: %v", err)
		}
	}
	n, err := open(e.target.Settings)
	e.must(saidStrictly, err, "open with good settings")
	join(e.node(2), n, transport.Data).passes(1)
}

// withSetting returns the settings, a JSON object, with one more key.
func withSetting(settings []byte, name string) []byte {
	head := bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(settings), []byte("}")))
	if len(head) == 0 {
		head = []byte("{")
	}
	comma := ","
	if bytes.HasSuffix(head, []byte("{")) {
		comma = ""
	}
	return fmt.Appendf(nil, "%s%s%q: 1}", head, comma, name)
}
