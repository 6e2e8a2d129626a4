package main

import (
	"context"
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
every rule of the storage contract, each on a fresh store, with the plugin's
process killed and started again where the rule is about that. It ends with 0
when at least one case passed and none failed. The checksum that it prints can be
pinned in plugins.checksums.

The kit gives each case a place of its own: in --settings, {dir} stands for an
empty directory and {name} for a fresh word. A plugin that has a setting "path"
is given {"path": "{dir}/store"}.`,
		Example: `  brokerd plugin check storage-file
  brokerd plugin check storage-file --only append
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
	cmd.Flags().BoolVar(&k.probe, "probe", false, "only ask the plugin what it is; open no store")
	outputFlag(cmd, &k.format)
	return cmd
}

func (c *console) checkPlugin(cmd *cobra.Command, name string, k checking) error {
	_, builtin := builtinPlugins()[name]
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
	if k.settings == "" {
		if !slices.ContainsFunc(info.Settings, func(s plugin.Setting) bool { return s.Name == "path" }) {
			return usagef(cmd, "the plugin has no setting path: say with --settings where each case of the kit has a place of its own, or give --probe")
		}
		k.settings = `{"path":"` + pluginhost.FreshDirectory + `/store"}`
	}
	if !json.Valid([]byte(k.settings)) {
		return usagef(cmd, "--settings is not JSON")
	}
	return c.runKit(cmd.Context(), host, name, k)
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

var kitResults = map[storagetest.Status]string{
	storagetest.Passed: "passed", storagetest.Failed: "FAILED", storagetest.NotApplicable: "not applicable",
}

// runKit runs the cases, telling each as it ends, and fails if one does.
func (c *console) runKit(ctx context.Context, host *pluginhost.Host, name string, k checking) error {
	var writeErr error
	opt := storagetest.Options{
		Seed:   k.seed,
		Filter: func(name string) bool { return strings.Contains(name, k.only) },
		Progress: func(r storagetest.Result) {
			if r.Status == storagetest.Running || k.format == "json" || writeErr != nil {
				return
			}
			_, writeErr = fmt.Fprintf(c.out, "%-15s %6.2fs  %-28s %s\n", kitResults[r.Status], r.Duration.Seconds(), r.Name, r.Message)
		},
	}
	report, err := host.Check(ctx, name, []byte(k.settings), opt)
	if err := errors.Join(err, writeErr, ctx.Err()); err != nil {
		return err
	}
	if k.format == "json" {
		var all []shownCase
		for _, r := range report.Results {
			all = append(all, shownCase{r.Name, strings.ToLower(kitResults[r.Status]), r.Duration.Seconds(), r.Message})
		}
		if err := writeJSON(c.out, all); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintf(c.out, "\n%d passed, %d failed, %d not applicable\n",
		report.Count(storagetest.Passed), report.Count(storagetest.Failed), report.Count(storagetest.NotApplicable)); err != nil {
		return err
	}
	switch {
	case report.Count(storagetest.Failed) > 0:
		return fmt.Errorf("%s breaks the storage contract in %d cases", name, report.Count(storagetest.Failed))
	case !report.OK():
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
