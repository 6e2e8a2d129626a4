package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"strings"
	"testing"
)

const module = "github.com/brokerd/brokerd/"

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// machines are pure: they import each other's vocabulary and the few standard
// packages that have no effect.
var machines = []string{"core/partition", "core/controller", "core/group", "core/lifecycle", "core/txn"}

// machineMay is what a machine may import of ours.
var machineMay = []string{"core/model", "core/batch", "core/image", "core/image/topicconfig", "sdk/recordbatch"}

// machineNever are standard packages with effects.
var machineNever = []string{"os", "net", "net/http", "sync", "sync/atomic", "log", "log/slog", "context", "io/fs", "syscall", "crypto/rand"}

// may lists, for each package of the core that is not a machine, what it may
// import of ours. A package that is missing here fails: a new room is a decision.
var may = map[string][]string{
	"core/model":              {"sdk/recordbatch"},
	"core/batch":              {"core/model", "sdk/recordbatch"},
	"core/image":              {"core/model", "core/image/metadatapb", "core/image/topicconfig"},
	"core/image/metadatapb":   {},
	"core/image/topicconfig":  {},
	"core/memory":             {},
	"core/loop":               {},
	"core/security":           {},
	"core/config":             {"core/image/topicconfig"},
	"core/wire":               {"core/model", "core/security", "sdk/recordbatch"},
	"core/api":                {"core/wire", "core/model", "core/image", "core/image/topicconfig", "core/batch", "core/security", "sdk/recordbatch"},
	"core/server":             {"core/wire", "core/model", "core/memory", "core/security"},
	"core/replica":            {"core/loop", "core/memory", "core/partition", "core/replica/streamwire", "core/model", "core/image", "core/image/topicconfig", "core/batch", "sdk/recordbatch", "sdk/storage"},
	"core/replica/streamwire": {"core/partition", "core/model"},
	"core/coordinator":        {"core/loop", "core/group", "core/model", "core/image", "core/image/topicconfig", "core/batch", "sdk/recordbatch"},
	"core/controller/command": {"core/controller", "core/model"},
	"core/quorum":             {"core/loop", "core/controller", "core/controller/command", "core/model", "core/image", "core/image/topicconfig", "sdk/transport"},
	"core/membership":         {"core/loop", "core/controller", "core/lifecycle", "core/model", "core/image"},
	"core/peer":               {"core/loop", "core/memory", "core/model", "sdk/transport"},
	"core/pluginhost":         {"sdk/plugin", "sdk/plugin/plugintest", "sdk/storage", "sdk/storage/storagetest", "sdk/transport", "sdk/transport/streams", "sdk/transport/transporttest"},
	"core/telemetry":          {},
	"core/admin":              {"core/model", "core/image"},
	"core/doctor":             {},
}

// anything names the packages that may import all of core.
var anything = []string{"core/broker", "core/sim", "cmd", "test"}

// outsiders know of a broker what a user can know: they start its processes, and see none of
// its code.
var outsiders = []string{"test/rig", "test/ports", "test/e2e", "test/clients", "test/suites", "test/chaos", "test/bench/peer"}

// outsiderMay is what outsiders may import of ours, in their tests too.
var outsiderMay = []string{"test/rig", "test/ports", "test/faultfs", "sdk/recordbatch"}

// simulator is the packages that simulate, which share what is below core/sim.
var simulator = []string{"core/sim"}

// pure are packages that are no machines and have no effects either.
var pure = []string{"core/doctor"}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, module); ours {
				if why := forbidden(from, to); why != "" {
					t.Errorf("%s imports %s: %s", from, to, why)
				}
			} else if (contains(machines, from) || contains(pure, from)) && contains(machineNever, imported) {
				t.Errorf("%s imports %s: it is to have no effects", from, imported)
			}
		}
		for _, imported := range append(p.TestImports, p.XTestImports...) {
			to := strings.TrimPrefix(imported, module)
			if strings.HasPrefix(from, "sdk/") && strings.HasPrefix(to, "core/") {
				t.Errorf("tests of %s import %s: the sdk stands alone", from, to)
			}
			if contains(outsiders, from) && imported != to {
				if why := forbidden(from, to); why != "" {
					t.Errorf("tests of %s import %s: %s", from, to, why)
				}
			}
		}
	}
}

// contracts are the packages that say what a plugin is to do, and what they need of ours.
var contracts = []string{"sdk/storage", "sdk/transport", "sdk/transport/frame", "sdk/transport/streams", "sdk/recordbatch"}

// TestSDKStandsOnTheStandardLibrary: the contracts themselves need nothing else but each other.
func TestSDKStandsOnTheStandardLibrary(t *testing.T) {
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		if !contains(contracts, from) {
			continue
		}
		for _, imported := range p.Imports {
			if strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") && !contains(contracts, strings.TrimPrefix(imported, module)) {
				t.Errorf("%s imports %s: the contract needs the standard library alone", from, imported)
			}
		}
	}
}

// forbidden says why `from` may not import `to`, or nothing.
func forbidden(from, to string) string {
	switch {
	case under(to, simulator) && (to == "core/sim" || !under(from, simulator)):
		return "nobody imports the simulator"
	case strings.HasPrefix(from, "sdk/"):
		if !strings.HasPrefix(to, "sdk/") {
			return "the sdk imports only itself"
		}
	case strings.HasPrefix(from, "plugins/"):
		own := strings.Join(strings.SplitN(from, "/", 3)[:2], "/")
		if !strings.HasPrefix(to, "sdk/") && to != own && !strings.HasPrefix(to, own+"/") {
			return "a plugin imports the sdk and itself"
		}
	case contains(machines, from):
		if !contains(machineMay, to) {
			return "a machine imports " + strings.Join(machineMay, ", ") + " and nothing else of ours"
		}
	case contains(outsiders, from):
		if !contains(outsiderMay, to) {
			return "a test of a broker from outside imports " + strings.Join(outsiderMay, ", ") + " and nothing else of ours"
		}
	case under(from, anything):
		return ""
	case strings.HasPrefix(from, "core/"):
		allowed, known := may[from]
		if !known {
			return "the package has no row in test/arch"
		}
		if !contains(allowed, to) {
			return "it may import only " + strings.Join(allowed, ", ")
		}
	}
	return ""
}

func under(from string, roots []string) bool {
	for _, r := range roots {
		if from == r || strings.HasPrefix(from, r+"/") {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// list asks the go command for every package of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", path.Join(module)+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found %d packages: this test would pass without looking", len(all))
	}
	return all
}
