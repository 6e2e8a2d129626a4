package plugin

import (
	"encoding/binary"
	"fmt"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Sizes of the bodies of units that are about files.
const (
	toldBodyBytes  = 33 // up to the batch infos
	grantBodyBytes = 5
	endBodyBytes   = 8
	leaseBodyBytes = 8
	leaseIDBytes   = 8

	toldAnswerBytes  = appendAnswerBytes + 1
	grantAnswerBytes = 57 // without the file's number, which old plugins do not send
	fileIDBytes      = 8
	leaseAnswerBytes = 49

	// requestBodyMax bounds the body of any request without what there is a number
	// of, answerFieldsMax that of an answer without its data.
	requestBodyMax  = toldBodyBytes
	answerFieldsMax = grantAnswerBytes + fileIDBytes
)

// grantRequest asks for a grant.
type grantRequest struct {
	epoch   int32
	require storage.Survives
}

// appendFileRequest encodes the body of a request that is about files.
func appendFileRequest(dst []byte, r *request) []byte {
	switch r.kind {
	case kindTold:
		a := &r.append
		dst = binary.BigEndian.AppendUint32(dst, uint32(a.LeaderEpoch))
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.BaseOffset))
		dst = append(dst, byte(a.Require))
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.Granted))
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.Pos))
		if r.infos == nil {
			return appendInfos(dst, a.Batches)
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.infos)/infoBytes))
		dst = append(dst, r.infos...)
	case kindGrant:
		dst = binary.BigEndian.AppendUint32(dst, uint32(r.grant.epoch))
		dst = append(dst, byte(r.grant.require))
	case kindEnd:
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.end))
	case kindLease:
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.lease))
	case kindReturn:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.leases)))
		for _, id := range r.leases {
			dst = binary.BigEndian.AppendUint64(dst, uint64(id))
		}
	}
	return dst
}

// parseFileRequest reads what appendFileRequest writes.
func parseFileRequest(body []byte, r *request) error {
	switch r.kind {
	case kindTold:
		if len(body) < toldBodyBytes {
			return shortUnit("append under a grant", body)
		}
		parseAppendFields(body, r)
		r.append.Granted = storage.GrantID(binary.BigEndian.Uint64(body[13:]))
		r.append.Pos = int64(binary.BigEndian.Uint64(body[21:]))
		r.append.Data = r.append.Data[:0]
		var rest []byte
		var err error
		if r.append.Batches, rest, err = parseInfos(r.append.Batches, body[29:]); err != nil {
			return err
		}
		if len(rest) > 0 || r.append.Granted == 0 {
			return fmt.Errorf("%w: append under grant %d with %d bytes", errUnit, r.append.Granted, len(rest))
		}
	case kindGrant:
		if len(body) != grantBodyBytes {
			return shortUnit("grant", body)
		}
		r.grant = grantRequest{epoch: int32(binary.BigEndian.Uint32(body)), require: storage.Survives(body[4])}
	case kindEnd:
		if len(body) != endBodyBytes {
			return shortUnit("end", body)
		}
		r.end = storage.GrantID(binary.BigEndian.Uint64(body))
	case kindLease:
		if len(body) != leaseBodyBytes {
			return shortUnit("lease", body)
		}
		r.lease = int64(binary.BigEndian.Uint64(body))
	case kindReturn:
		return parseLeaseIDs(body, r)
	case kindLock:
		if len(body) > 0 {
			return shortUnit("lock", body)
		}
	default:
		return fmt.Errorf("%w: kind %d", errUnit, r.kind)
	}
	return nil
}

func parseLeaseIDs(body []byte, r *request) error {
	if len(body) < 4 {
		return shortUnit("return", body)
	}
	n := uint64(binary.BigEndian.Uint32(body))
	if body = body[4:]; n*leaseIDBytes != uint64(len(body)) {
		return fmt.Errorf("%w: %d leases in %d bytes", errUnit, n, len(body))
	}
	r.leases = make([]storage.LeaseID, n)
	for i := range r.leases {
		r.leases[i] = storage.LeaseID(binary.BigEndian.Uint64(body[leaseIDBytes*i:]))
	}
	return nil
}

// appendFileAnswer encodes the fields of an answer that is about files, of a unit
// that begins at start.
func appendFileAnswer(dst []byte, start int, a *answer) []byte {
	if a.file != nil {
		dst[start+7] |= flagFile
	}
	switch a.kind {
	case kindTold | kindAnswer:
		dst = appendResult(dst, &a.append)
		dst = append(dst, boolByte(a.append.GrantOver))
	case kindGrant | kindAnswer:
		g := &a.grant
		dst = binary.BigEndian.AppendUint64(dst, uint64(g.ID))
		dst = binary.BigEndian.AppendUint64(dst, uint64(g.Pos))
		dst = binary.BigEndian.AppendUint64(dst, uint64(g.Limit))
		dst = binary.BigEndian.AppendUint64(dst, uint64(g.LEO))
		dst = binary.BigEndian.AppendUint32(dst, uint32(g.LeaderEpoch))
		dst = binary.BigEndian.AppendUint64(dst, uint64(g.MaxTimestamp))
		dst = binary.BigEndian.AppendUint64(dst, uint64(g.MaxOffset))
		dst = binary.BigEndian.AppendUint32(dst, uint32(g.EndMark))
		dst = append(dst, boolByte(g.Gaps))
		dst = binary.BigEndian.AppendUint64(dst, g.FileID)
	case kindLease | kindAnswer:
		l := &a.lease
		dst = binary.BigEndian.AppendUint64(dst, uint64(l.ID))
		dst = binary.BigEndian.AppendUint64(dst, l.FileID)
		dst = binary.BigEndian.AppendUint64(dst, uint64(l.Pos))
		dst = binary.BigEndian.AppendUint64(dst, uint64(l.Limit))
		dst = binary.BigEndian.AppendUint64(dst, uint64(l.First))
		dst = binary.BigEndian.AppendUint64(dst, uint64(l.End))
		dst = append(dst, boolByte(l.Gaps))
	}
	return dst
}

// parseFileAnswer reads what appendFileAnswer writes.
func parseFileAnswer(body []byte, a *answer) error {
	switch a.kind {
	case kindTold | kindAnswer:
		if len(body) < toldAnswerBytes {
			return shortUnit("answer to an append under a grant", body)
		}
		parseResult(body, &a.append)
		a.append.GrantOver = body[appendAnswerBytes] != 0
	case kindGrant | kindAnswer:
		rest := len(body) - grantAnswerBytes
		if rest < 0 || rest > 0 && rest < fileIDBytes {
			return shortUnit("answer to grant", body)
		}
		a.grant = storage.Grant{
			ID:           storage.GrantID(binary.BigEndian.Uint64(body)),
			Pos:          int64(binary.BigEndian.Uint64(body[8:])),
			Limit:        int64(binary.BigEndian.Uint64(body[16:])),
			LEO:          int64(binary.BigEndian.Uint64(body[24:])),
			LeaderEpoch:  int32(binary.BigEndian.Uint32(body[32:])),
			MaxTimestamp: int64(binary.BigEndian.Uint64(body[36:])),
			MaxOffset:    int64(binary.BigEndian.Uint64(body[44:])),
			EndMark:      int(binary.BigEndian.Uint32(body[52:])),
			Gaps:         body[56] != 0,
		}
		if rest > 0 {
			a.grant.FileID = binary.BigEndian.Uint64(body[grantAnswerBytes:])
		}
	case kindLease | kindAnswer:
		if len(body) < leaseAnswerBytes {
			return shortUnit("answer to lease", body)
		}
		a.lease = storage.Lease{
			ID:     storage.LeaseID(binary.BigEndian.Uint64(body)),
			FileID: binary.BigEndian.Uint64(body[8:]),
			Pos:    int64(binary.BigEndian.Uint64(body[16:])),
			Limit:  int64(binary.BigEndian.Uint64(body[24:])),
			First:  int64(binary.BigEndian.Uint64(body[32:])),
			End:    int64(binary.BigEndian.Uint64(body[40:])),
			Gaps:   body[48] != 0,
		}
	case kindEnd | kindAnswer, kindLock | kindAnswer:
	default:
		return fmt.Errorf("%w: kind %d", errUnit, a.kind)
	}
	return nil
}
