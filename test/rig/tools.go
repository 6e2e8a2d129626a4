package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Brokerd is the package of the broker.
const Brokerd = "github.com/brokerd/brokerd/cmd/brokerd"

// Build builds a program into a file. A package of this module is named by its import path
// from anywhere below the top of the tree, one of another module from its own folder, dir
// (empty: the working directory). Further arguments are those of `go build`.
func Build(ctx context.Context, dir, file, pkg string, args ...string) error {
	argv := append(append([]string{"build", "-o", file}, args...), pkg)
	cmd := exec.CommandContext(ctx, "go", argv...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Tool has scripts/tools install something, unless it is there, and returns what it says of
// it: mostly a path.
func Tool(ctx context.Context, name string) (string, error) {
	top, err := Top()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "bash", filepath.Join(top, "scripts", "tools"), name)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("scripts/tools %s: %w\n%s", name, err, errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// Top is the top of the tree, which the working directory is in.
func Top() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "tools")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("run this inside brokerd's tree: no folder above has scripts/tools")
		}
		dir = up
	}
}
