package rig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Children are the processes whose parent is pid, as /proc has them now, without those that
// have ended and were not reaped.
func Children(pid int) []int {
	var found []int
	for _, n := range processes() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
		if err != nil {
			continue // it ended
		}
		// pid (name) state ppid ...: the name may hold spaces.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(pid) {
			found = append(found, n)
		}
	}
	return found
}

// Holders are processes, other than this one, that hold a file below a directory open.
func Holders(dir string) []int {
	var found []int
	for _, n := range processes() {
		if n == os.Getpid() {
			continue
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, dir+"/") {
				found = append(found, n)
				break
			}
		}
	}
	return found
}

// processes are the numbers of all of them.
func processes() []int {
	var all []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, n)
		}
	}
	return all
}
