package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// probeTimeout bounds what is asked of a plugin before the kit runs.
const probeTimeout = 30 * time.Second

// checking is one run of `plugin check`.
type checking struct {
	dir      string
	settings string
	only     string
	seed     uint64
	probe    bool
	format   string
}

func newPluginCheck(c *console) *cobra.Command {
	var k checking
	cmd := &cobra.Command{
		Use:   "check NAME",
		Short: "Run the conformance kit against a plugin",
		Long: `Starts a plugin as a broker does, asks what it is, and runs the conformance kit:
every rule of the contract of its kind, each on a fresh store, or between fresh
nodes, with the plugin's process killed and started again where the rule is about
that. It ends with 0 when at least one case passed and none failed. The checksum
that it prints can be pinned in plugins.checksums.

The kit gives each store a place of its own: in --settings, {dir} stands for an
empty directory and {name} for a fresh word. A plugin that has a setting "path"
is given {"path": "{dir}/store"}.

Of a transport, all nodes have the same settings, {name} but for a fresh word of
each, and listen where nobody else does. A plugin that has the settings "listen"
and "secret" is given {"listen": "127.0.0.1:0"} and a secret, and other nodes
another one.`,
		Example: `  brokerd plugin check storage-file
  brokerd plugin check storage-file --only append
  brokerd plugin check transport-tcp
  brokerd plugin check storage-s3 --dir /usr/lib/brokerd/plugins --settings '{"bucket":"test","prefix":"{name}"}'`,
		Args: oneArg("a plugin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(cmd, k.format); err != nil {
				return err
			}
			return c.checkPlugin(cmd, args[0], k)
		},
	}
	cmd.Flags().StringVar(&k.dir, "dir", "", "the directory of plugins; empty: the built-in ones")
	cmd.Flags().StringVar(&k.settings, "settings", "", "the plugin's section of the configuration, as JSON")
	cmd.Flags().StringVar(&k.only, "only", "", "only the cases whose name has this in it")
	cmd.Flags().Uint64Var(&k.seed, "seed", 1, "what decides everything that is random")
	cmd.Flags().BoolVar(&k.probe, "probe", false, "only ask the plugin what it is; open nothing")
	outputFlag(cmd, &k.format)
	return cmd
}

func (c *console) checkPlugin(cmd *cobra.Command, name string, k checking) error {
	_, builtin := builtins()[name]
	if k.dir == "" && !builtin {
		return unknownPlugin(name)
	}
	if k.dir != "" && !slices.Contains(mustPluginFiles(k.dir), filepath.Join(k.dir, name)) {
		return &notFoundError{fmt.Sprintf("there is no executable %s in %s", name, k.dir)}
	}
	log := slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelError}))
	host := pluginhost.New(pluginhost.Config{Dir: k.dir, Builtin: builtinArguments()}, log, nil)
	probing, cancel := context.WithTimeout(cmd.Context(), probeTimeout)
	defer cancel()
	info, err := host.Probe(probing, name)
	if err != nil {
		return err
	}
	if info.Name != name {
		return fmt.Errorf("the file is named %s and the plugin says that it is %s; rename the file", name, info.Name)
	}
	if k.format != "json" {
		if err := c.introduce(info, name, k.dir); err != nil {
			return err
		}
	}
	if k.probe {
		return nil
	}
	if k.settings != "" && !json.Valid([]byte(k.settings)) {
		return usagef(cmd, "--settings is not JSON")
	}
	has := func(setting string) bool {
		return slices.ContainsFunc(info.Settings, func(s plugin.Setting) bool { return s.Name == setting })
	}
	switch {
	case info.Kind == plugin.KindTransport:
		var outsider string
		if k.settings == "" {
			if !has("listen") || !has("secret") {
				return usagef(cmd, "the plugin has no settings listen and secret: say with --settings how nodes listen where nobody else does, and believe each other, or give --probe")
			}
			k.settings, outsider = withSecret(), withSecret()
		}
		return c.runKit(cmd.Context(), name, k, "transport", func(ctx context.Context, tell func(shownCase)) ([]shownCase, error) {
			return runTransportKit(ctx, host, name, k, outsider, tell)
		})
	case info.Kind != plugin.KindStorage:
		return fmt.Errorf("plugin %s is of kind %q, which this program does not know", name, info.Kind)
	case k.settings == "":
		if !has("path") {
			return usagef(cmd, "the plugin has no setting path: say with --settings where each case of the kit has a place of its own, or give --probe")
		}
		k.settings = `{"path":"` + pluginhost.FreshDirectory + `/store"}`
	}
	return c.runKit(cmd.Context(), name, k, "storage", func(ctx context.Context, tell func(shownCase)) ([]shownCase, error) {
		return runStorageKit(ctx, host, name, k, tell)
	})
}

// withSecret are the settings of nodes of one cluster, which nobody else knows.
func withSecret() string {
	return `{"listen":"127.0.0.1:0","secret":"` + rand.Text() + rand.Text() + `"}`
}

// mustPluginFiles are the executables in dir, none where it cannot be read.
func mustPluginFiles(dir string) []string {
	files, _ := pluginFiles(dir)
	return files
}

// introduce prints what the plugin says of itself.
func (c *console) introduce(info plugin.Info, name, dir string) error {
	path := ""
	if dir != "" {
		path = filepath.Join(dir, name)
	}
	sum, err := checksum(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "plugin    %s %s\nabout     %s\ncontract  %s, version %d\nsha256    %s\n\n", info.Name, info.Version, info.About, info.Kind, plugin.ProtocolVersion, sum)
	if err != nil {
		return err
	}
	if err := c.showSettings(info.Settings); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out)
	return err
}

// shownCase is a case of the kit as JSON.
type shownCase struct {
	Case    string  `json:"case"`
	Result  string  `json:"result"`
	Seconds float64 `json:"seconds"`
	Message string  `json:"message,omitempty"`
}

// How a case may have ended, as it is shown.
const (
	casePassed        = "passed"
	caseFailed        = "FAILED"
	caseNotApplicable = "not applicable"
)

// runStorageKit runs the kit of stores.
func runStorageKit(ctx context.Context, host *pluginhost.Host, name string, k checking, tell func(shownCase)) ([]shownCase, error) {
	word := map[storagetest.Status]string{
		storagetest.Passed: casePassed, storagetest.Failed: caseFailed, storagetest.NotApplicable: caseNotApplicable,
	}
	show := func(r storagetest.Result) shownCase {
		return shownCase{r.Name, word[r.Status], r.Duration.Seconds(), r.Message}
	}
	report, err := host.Check(ctx, name, []byte(k.settings), storagetest.Options{
		Seed:   k.seed,
		Filter: k.wants,
		Progress: func(r storagetest.Result) {
			if r.Status != storagetest.Running {
				tell(show(r))
			}
		},
	})
	var all []shownCase
	for _, r := range report.Results {
		all = append(all, show(r))
	}
	return all, err
}

// runTransportKit runs the kit of transports.
func runTransportKit(ctx context.Context, host *pluginhost.Host, name string, k checking, outsider string, tell func(shownCase)) ([]shownCase, error) {
	word := map[transporttest.Status]string{
		transporttest.Passed: casePassed, transporttest.Failed: caseFailed, transporttest.NotApplicable: caseNotApplicable,
	}
	show := func(r transporttest.Result) shownCase {
		return shownCase{r.Name, word[r.Status], r.Duration.Seconds(), r.Message}
	}
	report, err := host.CheckTransport(ctx, name, []byte(k.settings), []byte(outsider), transporttest.Options{
		Seed:     k.seed,
		Filter:   k.wants,
		Progress: func(r transporttest.Result) { tell(show(r)) },
	})
	var all []shownCase
	for _, r := range report.Results {
		all = append(all, show(r))
	}
	return all, err
}

// wants says whether a case is to be run.
func (k checking) wants(name string) bool { return strings.Contains(name, k.only) }

// runKit runs the cases of a contract, telling each as it ends, and fails if one does.
func (c *console) runKit(ctx context.Context, name string, k checking, contract string, run func(context.Context, func(shownCase)) ([]shownCase, error)) error {
	var writeErr error
	all, err := run(ctx, func(r shownCase) {
		if k.format != "json" && writeErr == nil {
			_, writeErr = fmt.Fprintf(c.out, "%-15s %6.2fs  %-28s %s\n", r.Result, r.Seconds, r.Case, r.Message)
		}
	})
	if err := errors.Join(err, writeErr, ctx.Err()); err != nil {
		return err
	}
	count := make(map[string]int)
	for i := range all {
		count[all[i].Result]++
		all[i].Result = strings.ToLower(all[i].Result)
	}
	if k.format == "json" {
		err = writeJSON(c.out, all)
	} else {
		_, err = fmt.Fprintf(c.out, "\n%d passed, %d failed, %d not applicable\n", count[casePassed], count[caseFailed], count[caseNotApplicable])
	}
	switch {
	case err != nil:
		return err
	case count[caseFailed] > 0:
		return fmt.Errorf("%s breaks the %s contract in %d cases", name, contract, count[caseFailed])
	case count[casePassed] == 0:
		return &usageError{fmt.Sprintf("no case was run: none has %q in its name", k.only)}
	}
	return nil
}

func (c *console) showSettings(settings []plugin.Setting) error {
	rows := make([][]string, 0, len(settings))
	for _, s := range settings {
		about := s.About
		if s.Secret {
			about += " (secret)"
		}
		rows = append(rows, []string{s.Name, s.Default, about})
	}
	return writeTable(c.out, []string{"setting", "default", "about"}, rows)
}

func checksum(path string) (string, error) {
	if path == "" {
		own, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		path = own
	}
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find the plugin: %w", err)
		}
		return "", fmt.Errorf("read the plugin: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read the plugin: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
