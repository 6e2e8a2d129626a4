package main

import (
	"strings"
	"testing"
)

// TestTransportPlugin: the transport that is built in is listed, and passes the kit of its
// kind as a process of this program.
func TestTransportPlugin(t *testing.T) {
	code, out, errs := call(t, "", "plugin", "list")
	if code != exitOK || !strings.Contains(out, "transport-tcp  transport  built in") {
		t.Errorf("plugin list: %d\n%s%s", code, out, errs)
	}
	code, out, errs = call(t, "", "plugin", "check", "transport-tcp", "--only", "provider")
	if code != exitOK || !strings.Contains(out, "contract  transport, version 1") || !strings.Contains(out, "2 passed, 0 failed") {
		t.Errorf("plugin check: %d\n%s%s", code, out, errs)
	}
	code, out, errs = call(t, "", "plugin", "check", "transport-tcp", "--only", "denied", "-o", "json")
	if code != exitOK || !strings.Contains(out, `"result": "passed"`) || strings.Contains(out, "not applicable") {
		t.Errorf("plugin check -o json: %d\n%s%s", code, out, errs)
	}
	code, out, errs = call(t, "", "plugin", "check", "transport-tcp", "--settings", `{"listen": "127.0.0.1:0"}`, "--only", "provider-open")
	if code == exitOK || !strings.Contains(out, "nothing says how peers prove who they are") {
		t.Errorf("plugin check with settings that it refuses: %d\n%s%s", code, out, errs)
	}
	code, _, errs = call(t, "", "plugin", "serve", "transport-tcp")
	if code == exitOK || !strings.Contains(errs, "this is a plugin of brokerd") {
		t.Errorf("plugin serve by hand: %d\n%s", code, errs)
	}
}
