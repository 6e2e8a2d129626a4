package plugin

import "google.golang.org/grpc/mem"

// copyBytesMax is the most data that is copied beside its unit's head, because
// a part of its own would cost more than the copy.
const copyBytesMax = 4 << 10

// packer gathers units into the value of one frame. Its zero value is empty.
type packer struct {
	out     mem.BufferSlice
	scratch []byte // heads, and small data
	start   int    // what of scratch is in out already
	bytes   int    // of the value
}

// pack adds a unit: what encode writes, then the data that it returns. Data of
// more than copyBytesMax is not copied: it must not change until gRPC has
// written it.
func pack[U any](p *packer, encode func([]byte, *U) (out, data []byte), u *U) {
	before := len(p.scratch)
	var data []byte
	p.scratch, data = encode(p.scratch, u)
	p.bytes += len(p.scratch) - before + len(data)
	if len(data) <= copyBytesMax {
		p.scratch = append(p.scratch, data...)
		return
	}
	p.cut()
	p.out = append(p.out, mem.SliceBuffer(data))
}

// cut makes a part of what scratch has gathered. Growing scratch later leaves
// the part where it is.
func (p *packer) cut() {
	if p.start < len(p.scratch) {
		p.out = append(p.out, mem.SliceBuffer(p.scratch[p.start:]))
		p.start = len(p.scratch)
	}
}

// parts returns the frame's value. The packer is used up.
func (p *packer) parts() mem.BufferSlice {
	p.cut()
	return p.out
}
