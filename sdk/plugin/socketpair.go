package plugin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// socketBufferWanted is how much either side of the fast lane may hold in the
// kernel; the system may give less.
const socketBufferWanted = 1 << 20

// SocketPair makes the two ends of a fast lane within this process, for tests.
func SocketPair() (host, plugin *net.UnixConn, err error) {
	host, file, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	plugin, err = unixConn(file)
	if err != nil {
		_ = host.Close()
		return nil, nil, err
	}
	return host, plugin, nil
}

// socketPair makes a fast lane: our end, and the plugin's as a file to be
// inherited. Neither stays open in a process that is started, unless it is given it.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := rawSocketPair()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "plugin's socket")
	ours, err = unixConn(os.NewFile(uintptr(fds[0]), "broker's socket"))
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// unixConn makes a connection of a socket's file, which it closes.
func unixConn(file *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		return nil, fmt.Errorf("use a socket: %w", err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("use a socket: it is not a unix socket")
	}
	_ = unix.SetReadBuffer(socketBufferWanted) // with less it is slower
	_ = unix.SetWriteBuffer(socketBufferWanted)
	return unix, nil
}

// inheritedSocket is the plugin's end of the fast lane, nil if there is none that
// can be used. Processes that the plugin starts do not get it.
func inheritedSocket() *net.UnixConn {
	fd, err := strconv.Atoi(os.Getenv(socketKey))
	if err != nil || fd < firstExtraFile {
		return nil
	}
	_ = os.Unsetenv(socketKey)
	syscall.CloseOnExec(fd)
	conn, err := unixConn(os.NewFile(uintptr(fd), "broker's socket"))
	if err != nil {
		return nil
	}
	return conn
}
