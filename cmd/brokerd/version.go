package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the module's version, or the commit that was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

func newVersion(c *console) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "What this program is",
		Example: "  brokerd version\n  brokerd version -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(cmd, format); err != nil {
				return err
			}
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if format == "json" {
				return writeJSON(c.out, map[string]string{"version": version(), "go": runtime.Version(), "platform": platform})
			}
			_, err := fmt.Fprintf(c.out, "brokerd %s (%s, %s)\n", version(), runtime.Version(), platform)
			return err
		},
	}
	outputFlag(cmd, &format)
	return cmd
}
