package plugin

// stream is either end of the gRPC stream Data.
type stream interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// streamLink carries units in the frames of a gRPC stream.
type streamLink struct{ stream }

// send implements link: as many units in a frame as wait, up to about
// coalesceBytes. Data must not change until gRPC has written it, which the answer
// shows.
func (l streamLink) send(units outgoing) error {
	for i := 0; i < units.count(); {
		var p packer
		for ; i < units.count() && p.bytes < coalesceBytes; i++ {
			p.pack(units, i)
		}
		if err := l.SendMsg(&frame{parts: p.parts()}); err != nil {
			return err
		}
	}
	return nil
}

// receive implements link.
func (l streamLink) receive(fn func(incoming) error) error {
	for {
		var f frame
		if err := l.RecvMsg(&f); err != nil {
			return err
		}
		err := splitUnits(f.value, func(unit []byte) error {
			return fn(incoming{unit: unit, mem: f.buf, size: len(f.value)})
		})
		f.free()
		if err != nil {
			return err
		}
	}
}

func (streamLink) filesPass() bool { return false }
