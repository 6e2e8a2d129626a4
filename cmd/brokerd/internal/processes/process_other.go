//go:build !linux

package processes

import (
	"os"
	"path/filepath"
	"syscall"
)

// childAttributes: the end of standard input alone tells the child that we are gone.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// within is the path of a file of a directory.
func within(dir *os.File, name string) string { return filepath.Join(dir.Name(), name) }

// executable is the path of this program.
func executable() (string, error) { return os.Executable() }
