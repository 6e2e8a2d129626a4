// Package segment keeps one segment of a log: a file of raw record batches back
// to back, and the two sparse indexes beside it.
//
// It owns: the segment's file (open while somebody holds it, so that a reader
// may go on while the segment is deleted), the index of offsets and of
// timestamps, their file format, and the walk from batch to batch with its
// checks. It never decides which segments a log has, what may be cut, or when
// anything is synced.
//
// # Index files
//
// Both kinds have one frame; all numbers are big-endian:
//
//	offset size
//	     0    4  magic: "BOIX" offsets, "BTIX" timestamps
//	     4    2  version, 1
//	     6    2  flags: 1 = offsets are missing between batches
//	     8    8  base offset of the segment
//	    16    8  bytes of the segment that the index covers
//	    24    8  offset after the last batch
//	    32    8  greatest max timestamp, or -1
//	    40    8  max timestamp of the first batch, or -1
//	    48    8  when the last batch was written, milliseconds since 1970
//	    56    4  count of entries
//	    60    4  CRC-32C of bytes 0 to 59
//	    64       entries
//	  then    4  CRC-32C of the entries
//
// An entry of the offset index is (offset - base, position), 4 bytes each. An
// entry of the time index is (greatest timestamp up to and including a batch,
// 8 bytes; that batch's offset - base, 4 bytes); entries rise in both.
//
// # Invariants
//
//   - An index is a hint: whatever its files hold, a walk that starts from it
//     returns the batches that the segment holds, or an error (FuzzIndex).
//   - A walk never reads outside the limit it was given, never allocates more
//     than what lies before it, and never panics (FuzzSegment).
package segment
