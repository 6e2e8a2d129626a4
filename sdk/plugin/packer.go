package plugin

import (
	"google.golang.org/grpc/mem"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// copyBytesMax is the most data that is copied beside its unit's head, because
// a part of its own would cost more than the copy.
const copyBytesMax = 4 << 10

// packChunkBytes is how much heads and small data are gathered into one buffer. It
// is a size that gRPC's pool has, and holds the largest unit but for many infos.
const packChunkBytes = 32 << 10

// packer gathers units into the value of one frame. Its zero value is empty.
type packer struct {
	out   mem.BufferSlice
	chunk *[]byte // from the pool; what follows start is not in out yet
	root  mem.Buffer
	start int
	bytes int // of the value
}

// pack adds unit i. Data of more than copyBytesMax is not copied: it must not
// change until gRPC has written it.
func (p *packer) pack(units outgoing, i int) {
	p.reserve(units.bytesMax(i) + copyBytesMax)
	before := len(*p.chunk)
	out, data := units.encode(i, *p.chunk)
	size := recordbatch.TotalBytes(data)
	if size <= copyBytesMax {
		for _, part := range data {
			out = append(out, part...)
		}
	}
	*p.chunk = out
	p.bytes += len(out) - before
	if size > copyBytesMax {
		p.cut()
		for _, part := range data {
			p.out = append(p.out, mem.SliceBuffer(part))
		}
		p.bytes += size
	}
}

// reserve makes room in the chunk, if need be with a new one.
func (p *packer) reserve(n int) {
	if p.chunk != nil && cap(*p.chunk)-len(*p.chunk) >= n {
		return
	}
	p.close()
	p.chunk = mem.DefaultBufferPool().Get(max(n, packChunkBytes))
	*p.chunk = (*p.chunk)[:0]
}

// cut makes a part of what the chunk has gathered.
func (p *packer) cut() {
	if p.chunk == nil || p.start == len(*p.chunk) {
		return
	}
	if p.root == nil {
		whole := (*p.chunk)[:cap(*p.chunk)]
		p.root = mem.NewBuffer(&whole, mem.DefaultBufferPool())
	}
	p.out = append(p.out, p.root.Slice(p.start, len(*p.chunk)))
	p.start = len(*p.chunk)
}

// close gives the chunk to its parts: it goes back to the pool with the last.
func (p *packer) close() {
	p.cut()
	if p.root != nil {
		p.root.Free()
	}
	p.chunk, p.root, p.start = nil, nil, 0
}

// parts returns the frame's value. The packer is used up.
func (p *packer) parts() mem.BufferSlice {
	p.close()
	return p.out
}
