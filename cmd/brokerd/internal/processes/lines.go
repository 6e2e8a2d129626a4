package processes

import (
	"bytes"
	"io"
	"sync"
)

// lineMax is how much of a line is held until it ends; a longer one comes in parts.
const lineMax = 64 << 10

// console is what all processes write to, a line at a time.
type console struct {
	mu  sync.Mutex
	out io.Writer
}

func (c *console) line(name string, text []byte) {
	line := make([]byte, 0, len(name)+len(text)+4)
	line = append(append(append(append(line, name...), " | "...), text...), '\n')
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.out.Write(line) // a console that is gone is no reason to stop brokers
}

// lines takes what one process writes apart. Its methods are called one after the other.
type lines struct {
	pending []byte
	each    func(line []byte) // which is not kept
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			l.pending = append(l.pending, p...)
			if len(l.pending) >= lineMax {
				l.flush()
			}
			break
		}
		l.pending = append(l.pending, p[:end]...)
		l.each(l.pending)
		l.pending, p = l.pending[:0], p[end+1:]
	}
	return n, nil
}

// flush passes on a line that has not ended.
func (l *lines) flush() {
	if len(l.pending) > 0 {
		l.each(l.pending)
		l.pending = l.pending[:0]
	}
}
