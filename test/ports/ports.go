package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	portMin, portMax = 10_000, 30_000
	// triesMax is how many ports, or first ones of a row, are tried beside those that are asked for.
	triesMax = 200
)

// Free finds so many ports that nobody listens on.
func Free(n int) ([]int, error) {
	var found []int
	var held []net.Listener // so that none is found twice
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range triesMax + n {
		if len(found) == n {
			return found, nil
		}
		port := portMin + rand.IntN(portMax-portMin)
		if l, err := listen(port); err == nil {
			held, found = append(held, l), append(found, port)
		}
	}
	return nil, fmt.Errorf("no %d free ports from %d to %d", n, portMin, portMax)
}

// InRow finds so many one after the other.
func InRow(n int) ([]int, error) {
	for range triesMax {
		first := portMin + rand.IntN(portMax-portMin-n)
		var found []int
		for port := first; port < first+n; port++ {
			l, err := listen(port)
			if err != nil {
				break
			}
			l.Close()
			found = append(found, port)
		}
		if len(found) == n {
			return found, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports in a row from %d to %d", n, portMin, portMax)
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
