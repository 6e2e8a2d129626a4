package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
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
		RunE: func(cmd *cobra.Command, args []string) error {
			p, ok := builtins()[args[0]]
			if !ok {
				return unknownPlugin(args[0])
			}
			ctx, end := context.WithCancel(cmd.Context())
			var small sync.WaitGroup
			small.Go(func() { keepSmall(ctx, pluginWaste) })
			defer small.Wait()
			defer end()
			return p.serve()
		},
	}
}

func unknownPlugin(name string) error {
	return &notFoundError{fmt.Sprintf("there is no plugin %s built in; those are %s. Give --dir for others", name, strings.Join(builtinNames(), ", "))}
}

func builtinNames() []string { return slices.Sorted(maps.Keys(builtins())) }

type listedPlugin struct {
	Name    string `json:"name"`
	Kind    string `json:"kind,omitempty"` // of one that is built in: storage or transport
	Origin  string `json:"origin"`         // built in, or a path
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
				info := builtins()[name].info
				found = append(found, listedPlugin{name, info.Kind, "built in", info.Version, info.About})
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
				rows = append(rows, []string{p.Name, p.Kind, p.Origin, p.Version, p.About})
			}
			return writeTable(c.out, []string{"plugin", "kind", "origin", "version", "about"}, rows)
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
