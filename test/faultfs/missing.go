package faultfs

import "os"

// missingName is the variable of the environment that says that this machine is known to
// have no FUSE, or no root.
const missingName = "BROKERD_NO_FUSE"

// Missing reports, aloud, whether this machine is known to have no disks of faults, so that
// what needs one is left out. Where nobody has said so, what needs one fails.
func Missing(tell func(format string, args ...any)) bool {
	if os.Getenv(missingName) == "" {
		return false
	}
	tell("NOT RUN: %s says that this machine can mount no disk of faults", missingName)
	return true
}
