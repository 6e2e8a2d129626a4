//go:build !linux

package plugin

import (
	"os"
	"syscall"
)

// childAttributes: the end of standard input alone tells the child that we are
// gone.
func childAttributes() *syscall.SysProcAttr { return nil }

// ownExecutable is the path of our executable.
func ownExecutable(name string) string { return name }

// descriptorPath: there is no path for an open file.
func descriptorPath(*os.File) string { return "" }
