package broker

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// descriptorsOwn is how many files and sockets a broker has open beside its
// clients' connections, generously.
const descriptorsOwn = 128

// descriptorsMax is how many files and sockets this process may have open, 0
// where that is not known. Go has raised the soft limit to the hard one when the
// process started; plugins do the same with theirs.
func descriptorsMax() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0 // it is only asked for a warning
	}
	return limit.Cur
}

// descriptorWarnings compares that with the connections that may be open.
func descriptorWarnings(limit uint64, connections int) []string {
	if limit == 0 || limit >= uint64(connections)+descriptorsOwn {
		return nil
	}
	enough := max(int64(limit)-descriptorsOwn, 0)
	return []string{fmt.Sprintf("this process may have %d files open, which is enough for about %d connections and not for max.connections (%d); "+
		"plugins have the same limit, and share it among the files of their partitions, slower the more there are: raise LimitNOFILE or ulimit -n, or lower max.connections", limit, enough, connections)}
}
