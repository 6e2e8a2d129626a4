package main

import (
	"os/exec"
	"syscall"
)

// endWithParent has a process be killed when this one ends, however it does, and be of another
// group, so that nobody but this one ends it.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
