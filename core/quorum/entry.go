package quorum

import (
	"encoding/binary"
	"fmt"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
)

// An entry of the metadata log, and the data of a snapshot:
//
//	format    byte     entryFormat
//	session   8 bytes  random for each time that a node becomes leader
//	proposal  uvarint  the controller's number in that session
//	batch              as core/image encodes it
//
// A snapshot has session and proposal 0, and the batch makes the whole image.
const entryFormat byte = 1

const entryHeaderMin = 1 + 8 + 1

// session tells a leader's own proposals from those of leaders before it.
type session [8]byte

func encodeEntry(s session, p controller.ProposalID, records []image.Record) []byte {
	b := append([]byte{entryFormat}, s[:]...)
	b = binary.AppendUvarint(b, uint64(p))
	return image.AppendBatch(b, records)
}

func decodeEntry(b []byte) (session, controller.ProposalID, []image.Record, error) {
	var s session
	if len(b) < entryHeaderMin || b[0] != entryFormat {
		return s, 0, nil, fmt.Errorf("entry of %d bytes is not of format %d", len(b), entryFormat)
	}
	copy(s[:], b[1:])
	p, n := binary.Uvarint(b[9:])
	if n <= 0 {
		return s, 0, nil, fmt.Errorf("entry of %d bytes ends in its header", len(b))
	}
	records, err := image.DecodeBatch(b[9+n:])
	return s, controller.ProposalID(p), records, err
}

// replay applies the records of one entry.
func replay(base *image.Image, index uint64, records []image.Record) (*image.Image, error) {
	d := image.NewDelta(base, int64(index))
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			return nil, err
		}
	}
	return d.Image(), nil
}
