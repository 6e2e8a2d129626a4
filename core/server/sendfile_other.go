//go:build !linux

package server

import (
	"errors"
	"os"
)

// canSendFiles says whether the kernel sends from files to sockets.
const canSendFiles = false

func sendMore(uintptr, [][]byte) (int, error) { return 0, errors.ErrUnsupported }

func sendFile(uintptr, *os.File, int64, int) (int, error) { return 0, errors.ErrUnsupported }
