package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
)

func newPlugin(c *console) *cobra.Command {
	return group("plugin", "List and check plugins", `  brokerd plugin list
  brokerd plugin check storage-file`,
		newPluginList(c), newPluginCheck(c), newPluginServe())
}

// newPluginServe is how the broker starts a plugin that is built in: this same
// program, as a process of its own.
func newPluginServe() *cobra.Command {
	return &cobra.Command{
		Use:     "serve NAME",
		Short:   "Be a built-in plugin; the broker starts this, nobody else",
		Example: "  brokerd plugin serve storage-file",
		Args:    oneArg("a plugin"),
		Hidden:  true,
		RunE: func(_ *cobra.Command, args []string) error {
			p, ok := builtinPlugins()[args[0]]
			if !ok {
				return unknownPlugin(args[0])
			}
			return plugin.ServeStorage(p)
		},
	}
}

func unknownPlugin(name string) error {
	return &notFoundError{fmt.Sprintf("there is no plugin %s built in; those are %s. Give --dir for others", name, strings.Join(builtinNames(), ", "))}
}

func builtinNames() []string { return slices.Sorted(maps.Keys(builtinPlugins())) }

type listedPlugin struct {
	Name    string `json:"name"`
	Origin  string `json:"origin"` // built in, or a path
	Version string `json:"version,omitempty"`
	About   string `json:"about,omitempty"`
}

func newPluginList(c *console) *cobra.Command {
	var dir, format string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the plugins that a broker here can start",
		Example: `  brokerd plugin list
  brokerd plugin list --dir /usr/lib/brokerd/plugins -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(cmd, format); err != nil {
				return err
			}
			var found []listedPlugin
			for _, name := range builtinNames() {
				info := builtinPlugins()[name].Info()
				found = append(found, listedPlugin{name, "built in", info.Version, info.About})
			}
			paths, err := pluginFiles(dir)
			if err != nil {
				return err
			}
			for _, path := range paths {
				found = append(found, listedPlugin{Name: filepath.Base(path), Origin: path})
			}
			if format == "json" {
				return writeJSON(c.out, found)
			}
			var rows [][]string
			for _, p := range found {
				rows = append(rows, []string{p.Name, p.Origin, p.Version, p.About})
			}
			return writeTable(c.out, []string{"plugin", "origin", "version", "about"}, rows)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the directory of plugins (plugins.dir)")
	outputFlag(cmd, &format)
	return cmd
}

// pluginFiles are the executables in a directory of plugins.
func pluginFiles(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the directory of plugins: %w", err)
	}
	var out []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("read the directory of plugins: %w", err)
		}
		if info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

const pluginCheckTimeout = 30 * time.Second

func newPluginCheck(c *console) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "check NAME",
		Short: "Start a plugin and say what it answers",
		Long: `Starts a plugin as a broker does, agrees with it on the version of the contract,
asks what it is, and stops it. It opens no store. The checksum that it prints can
be pinned in plugins.checksums.`,
		Example: `  brokerd plugin check storage-file
  brokerd plugin check storage-s3 --dir /usr/lib/brokerd/plugins`,
		Args: oneArg("a plugin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			launch := plugin.LaunchConfig{Logger: slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelWarn}))}
			if dir != "" {
				launch.Path = filepath.Join(dir, args[0])
			} else if _, ok := builtinPlugins()[args[0]]; !ok {
				return unknownPlugin(args[0])
			} else {
				launch.Args = builtinArguments()[args[0]]
			}
			return c.checkPlugin(cmd.Context(), launch)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the directory of plugins; empty: the built-in ones")
	return cmd
}

func (c *console) checkPlugin(ctx context.Context, launch plugin.LaunchConfig) error {
	ctx, cancel := context.WithTimeout(ctx, pluginCheckTimeout)
	defer cancel()
	p, err := plugin.Launch(ctx, launch)
	if err != nil {
		return err
	}
	defer p.Kill()
	info, err := p.Info(ctx)
	if err != nil {
		return fmt.Errorf("ask the plugin what it is: %w", err)
	}
	if launch.Path != "" && filepath.Base(launch.Path) != info.Name {
		return fmt.Errorf("the file is named %s and the plugin says that it is %s; rename the file", filepath.Base(launch.Path), info.Name)
	}
	sum, err := checksum(launch.Path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "plugin    %s %s\nabout     %s\ncontract  storage, version %d\nsha256    %s\n\n", info.Name, info.Version, info.About, plugin.ProtocolVersion, sum)
	if err != nil {
		return err
	}
	return c.showSettings(info.Settings)
}

func (c *console) showSettings(settings []storage.Setting) error {
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
