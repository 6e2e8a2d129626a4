package sealed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
)

// TempSuffix ends the name of a file that is being written. One that is found
// at the start is left over from a crash and may be removed.
const TempSuffix = ".tmp"

const (
	headerBytes = 12
	crcBytes    = 4
	// Overhead is what the frame adds to a payload.
	Overhead = headerBytes + crcBytes
)

// ErrDamaged says that the bytes are not a whole file of the kind asked for.
var ErrDamaged = errors.New("damaged file")

// ErrVersion says that the file is whole, and of a version that we do not know.
var ErrVersion = errors.New("unknown file version")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Kind is a kind of file: its magic, and the newest version that is written
// and read.
type Kind struct {
	Magic   string // four bytes
	Version uint16
}

// Encode frames a payload.
func Encode(k Kind, payload []byte) []byte {
	b := make([]byte, 0, Overhead+len(payload))
	b = append(b, k.Magic...)
	b = binary.BigEndian.AppendUint16(b, k.Version)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Decode returns the payload inside b, which may be longer than the frame.
func Decode(k Kind, b []byte) ([]byte, error) {
	if len(b) < Overhead {
		return nil, fmt.Errorf("%w: %d bytes", ErrDamaged, len(b))
	}
	if string(b[:4]) != k.Magic {
		return nil, fmt.Errorf("%w: magic %q, not %q", ErrDamaged, b[:4], k.Magic)
	}
	n := int64(binary.BigEndian.Uint32(b[8:]))
	if n > int64(len(b)-Overhead) {
		return nil, fmt.Errorf("%w: payload of %d in %d bytes", ErrDamaged, n, len(b))
	}
	end := headerBytes + int(n)
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return nil, fmt.Errorf("%w: CRC mismatch", ErrDamaged)
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != k.Version {
		return nil, fmt.Errorf("%w: %d, this program knows %d", ErrVersion, v, k.Version)
	}
	return b[headerBytes:end:end], nil
}

// Read returns the payload of the file, which has at most payloadMax bytes.
func Read(fs vfs.FS, name string, k Kind, payloadMax int64) ([]byte, error) {
	b, err := vfs.ReadAll(fs, name, payloadMax+Overhead)
	if err != nil {
		return nil, err
	}
	payload, err := Decode(k, b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return payload, nil
}

// Replace puts the payload in place of the file's, durably and atomically.
func Replace(fs vfs.FS, name string, k Kind, payload []byte) error {
	return ReplaceBytes(fs, name, Encode(k, payload))
}

// ReplaceBytes is Replace for a file that has a frame of its own. On error the
// old file stands, or, after a failed sync of the directory, either.
func ReplaceBytes(fs vfs.FS, name string, b []byte) error {
	temp := name + TempSuffix
	if err := write(fs, temp, b); err != nil {
		_ = fs.Remove(temp) // else removed at the next start
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fs.Rename(temp, name); err != nil {
		return fmt.Errorf("rename %s: %w", temp, err)
	}
	if err := fs.SyncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("sync directory of %s: %w", name, err)
	}
	return nil
}

func write(fs vfs.FS, name string, b []byte) error {
	f, err := fs.Open(name, vfs.Empty)
	if err != nil {
		return err
	}
	if _, err := f.WriteVecAt([][]byte{b}, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
