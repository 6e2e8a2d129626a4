package main

import (
	"os/exec"
	"syscall"
)

// endWithParent has a process be killed when this one ends, however it does.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
