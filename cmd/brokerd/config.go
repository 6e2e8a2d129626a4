package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brokerd/brokerd/configs"
	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/config"
)

func newConfig(c *console) *cobra.Command {
	return group("config", "Check and show a broker's configuration", `  brokerd config check /etc/brokerd.yaml
  brokerd config show --config /etc/brokerd.yaml
  brokerd config example > brokerd.yaml`,
		newConfigCheck(c), newConfigShow(c), newConfigExample(c))
}

func newConfigCheck(c *console) *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Say what is wrong with a configuration file",
		Long:    "Reads a file as a broker would, the environment left aside, and says everything\nthat is wrong with it, each with its line. What it names is looked for on this\nmachine: plugins, their settings, directories, memory. Nothing is started.",
		Example: "  brokerd config check /etc/brokerd.yaml",
		Args:    oneArg("a file"),
		RunE: func(_ *cobra.Command, args []string) error {
			loaded, err := config.Load(config.Sources{File: args[0]})
			if err != nil {
				return &configError{err}
			}
			problems, warnings := checkSurroundings(loaded, memoryOfMachine())
			for _, w := range slices.Concat(loaded.Warnings, warnings) {
				_, _ = fmt.Fprintln(c.err, "warning: "+w)
			}
			if err := errors.Join(problems...); err != nil {
				return &configError{err}
			}
			_, err = fmt.Fprintf(c.out, "%s is valid\n", args[0])
			return err
		},
	}
}

func newConfigShow(c *console) *cobra.Command {
	var (
		opts    runOptions
		format  string
		changed bool
	)
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every setting, its value and where it came from",
		Example: `  brokerd config show
  brokerd config show --config /etc/brokerd.yaml --changed
  BROKERD_NODE_ID=3 brokerd config show -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(cmd, format); err != nil {
				return err
			}
			loaded, err := opts.load(os.Environ())
			if err != nil {
				return err
			}
			for _, w := range loaded.Warnings {
				_, _ = fmt.Fprintln(c.err, "warning: "+w)
			}
			var shown []config.Value
			var rows [][]string
			for _, v := range loaded.Values {
				if changed && v.Origin == "default" {
					continue
				}
				shown = append(shown, v)
				rows = append(rows, []string{v.Name, v.Value, v.Origin})
			}
			if format == "json" {
				return writeJSON(c.out, shown)
			}
			return writeTable(c.out, []string{"setting", "value", "origin"}, rows)
		},
	}
	opts.flags(cmd)
	cmd.Flags().BoolVar(&changed, "changed", false, "only what differs from the defaults' origin")
	outputFlag(cmd, &format)
	return cmd
}

func newConfigExample(c *console) *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "Print a file with every setting, its default and its meaning",
		Example: "  brokerd config example > brokerd.yaml",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := c.out.Write(configs.Dev)
			return err
		},
	}
}

// runOptions say which broker to run.
type runOptions struct {
	file string
	set  []string
	// overrides are the command's own flags.
	overrides []config.Override
	// ready is called when clients are served; or nil.
	ready func(*broker.Broker, config.Loaded) error
}

func (o *runOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.file, "config", "", "configuration file")
	cmd.Flags().StringArrayVar(&o.set, "set", nil, "a setting over the file's and the environment's, as name=value (repeatable)")
}

func (o *runOptions) load(environment []string) (config.Loaded, error) {
	overrides := o.overrides
	for _, pair := range o.set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return config.Loaded{}, &usageError{fmt.Sprintf("--set %s has no =; write name=value", pair)}
		}
		overrides = append(overrides, config.Override{Flag: "--set", Name: name, Value: value})
	}
	loaded, err := config.Load(config.Sources{File: o.file, Environment: environment, Overrides: overrides})
	if err != nil {
		return config.Loaded{}, &configError{err}
	}
	return loaded, nil
}
