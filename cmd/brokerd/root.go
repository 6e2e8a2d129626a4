package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// console is where a command reads and writes.
type console struct {
	in       io.Reader
	out, err io.Writer
	// A person types there, or watches.
	inTerminal, errTerminal bool
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, c *console, args []string) int {
	root := newRoot(c)
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := root.ExecuteContext(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(c.err, "brokerd: "+explain(err))
	}
	return exitCode(err)
}

func newRoot(c *console) *cobra.Command {
	var opts runOptions
	root := &cobra.Command{
		Use:   "brokerd",
		Short: "A message broker that speaks the Kafka protocol",
		Long: `brokerd is a message broker that speaks the Kafka protocol.

To try it, run "brokerd dev" and follow what it prints. To run a broker that
others depend on, write a configuration file and run "brokerd --config FILE".`,
		Example: `  brokerd dev
  brokerd --config /etc/brokerd.yaml
  brokerd topic list -b broker1:9092`,
		Args:                       noArgs,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		SilenceErrors:              true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.file == "" && len(opts.set) == 0 {
				return cmd.Help()
			}
			return runBroker(cmd.Context(), c, opts)
		},
	}
	root.Flags().StringVar(&opts.file, "config", "", "configuration file of the broker to run")
	root.Flags().StringArrayVar(&opts.set, "set", nil, "a setting over the file's and the environment's, as name=value (repeatable)")
	root.SetHelpCommand(newHelp())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usagef(cmd, "%s", flagText(err)) })
	root.AddCommand(newDev(c), newTopic(c), newGroup(c), newCluster(c), newBroker(c), newDoctor(c), newProduce(c), newConsume(c), newPlugin(c), newConfig(c), newVersion(c), newExitCodes())
	return root
}

// newHelp is cobra's help, but for commands that are not there.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "What a command does",
		Example: "  brokerd help\n  brokerd help topic create",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || target == nil || len(rest) > 0 {
				return usagef(cmd.Root(), "there is no command %q", strings.Join(args, " "))
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// noArgs, someArgs and exactArgs say what was wrong and where to read more.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		near := ""
		if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
			near = fmt.Sprintf("; did you mean %q?", strings.Join(s, `" or "`))
		}
		return usagef(cmd, "there is no command %q%s", args[0], near)
	}
	return usagef(cmd, "%q is not expected here", args[0])
}

func someArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef(cmd, "name %s", what)
		}
		return nil
	}
}

// flagText says what is wrong with a flag, in words that are not the parser's own.
func flagText(err error) string {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err.Error()
	}
	flag, wanted := invalid.GetFlag(), "a number"
	switch kind := flag.Value.Type(); {
	case errors.Is(number, strconv.ErrRange):
		return fmt.Sprintf("--%s cannot be %s", flag.Name, invalid.GetValue())
	case kind == "bool":
		wanted = "true or false"
	case strings.HasPrefix(kind, "int"):
		wanted = "a whole number"
	}
	return fmt.Sprintf("--%s is %q, which is not %s", flag.Name, invalid.GetValue(), wanted)
}

func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef(cmd, "name %s", what)
		case len(args) == 1 && args[0] == "": // a script's variable that is not set
			return usagef(cmd, "name %s: the name is empty", what)
		case len(args) > 1:
			return usagef(cmd, "%q is not expected here: name %s only", args[1], what)
		}
		return nil
	}
}

// group is a command that only holds others.
func group(use, short, example string, children ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Example: example, Args: noArgs, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	g.AddCommand(children...)
	return g
}
