package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

const (
	portMin, portMax = 10_000, 30_000
	// triesMax is how many ports, or first ones of a row, are tried beside those that are asked for.
	triesMax = 200
)

// found are the ports that this process was told of. It is not told of one twice: tests run
// beside each other, and the server of the first may not listen yet.
var found = struct {
	sync.Mutex
	before map[int]bool
}{before: map[int]bool{}}

// Free finds so many ports that nobody listens on, and that it has not found before. Several
// goroutines may call it.
func Free(n int) ([]int, error) {
	found.Lock()
	defer found.Unlock()
	var all []int
	for range triesMax + n {
		if len(all) == n {
			return all, nil
		}
		if port := portMin + rand.IntN(portMax-portMin); free(port) {
			found.before[port] = true
			all = append(all, port)
		}
	}
	return nil, fmt.Errorf("no %d free ports from %d to %d", n, portMin, portMax)
}

// InRow finds so many one after the other, likewise.
func InRow(n int) ([]int, error) {
	found.Lock()
	defer found.Unlock()
	for range triesMax {
		first := portMin + rand.IntN(portMax-portMin-n)
		var row []int
		for port := first; port < first+n && free(port); port++ {
			row = append(row, port)
		}
		if len(row) == n {
			for _, port := range row {
				found.before[port] = true
			}
			return row, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports in a row from %d to %d", n, portMin, portMax)
}

// free reports whether a port was not found before, and nobody listens on it.
func free(port int) bool {
	if found.before[port] {
		return false
	}
	l, err := listen(port)
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
