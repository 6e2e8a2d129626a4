//go:build !linux

package main

import "os/exec"

// endWithParent does nothing: nobody but Linux kills a process for that.
func endWithParent(*exec.Cmd) {}
