package memory

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ForgetProgram lets go of the pages of this process's own program. Most of them are
// needed while it starts, or works hard, and not while it is at rest, and count as its memory, and once more as that
// of a plugin that is the same program, until the system runs short. Those that are
// needed come back from the page cache one after the other, some 200 in all.
//
// It is called when the process has come to rest, and may be called while all others run.
// Where it cannot be known that a page is as in the file, it stays.
func ForgetProgram() error {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read the own mappings: %w", err)
	}
	defer f.Close()
	found, err := unchanged(f, path)
	if err != nil {
		return err
	}
	for _, m := range found {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("let go of pages of %s: %w", path, errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// unchanged are the mappings of a file that cannot be written and of which no page was
// changed, by a linker at the start or a debugger: those pages would be lost. Its source is
// /proc/PID/smaps:
//
//	from-to permissions offset device inode path
//	Name:    value
func unchanged(smaps io.Reader, path string) (found []mapping, err error) {
	lines := bufio.NewScanner(smaps)
	var m mapping
	for lines.Scan() {
		line := lines.Text()
		if name, value, ok := strings.Cut(line, ":"); ok && !strings.Contains(name, " ") {
			if name == "Anonymous" && m.to > 0 && strings.TrimSpace(value) == "0 kB" {
				found = append(found, m)
			}
			continue
		}
		m = mapping{}
		fields := strings.SplitN(line, " ", 6)
		if len(fields) < 6 || strings.TrimSpace(fields[5]) != path || !strings.HasPrefix(fields[1], "r-") || !strings.HasSuffix(fields[1], "p") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil || begin >= end {
			return nil, fmt.Errorf("a mapping %q", line)
		}
		m = mapping{uintptr(begin), uintptr(end)}
	}
	return found, lines.Err()
}
