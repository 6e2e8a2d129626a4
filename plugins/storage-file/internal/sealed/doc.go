// Package sealed keeps small values in files that say what they are and
// whether they are whole: a magic, a version, a length, the payload, a CRC.
//
//	offset size
//	     0    4  magic, one for each kind of file
//	     4    2  version
//	     6    2  zero
//	     8    4  payload length
//	    12    n  payload
//	  12+n    4  CRC-32C of all that precedes
//
// It owns that frame and the way such a file is replaced (a temporary file,
// its sync, a rename, the directory's sync). It never knows what a payload
// means. Invariant: after Replace returned, every crash leaves the new value;
// before it returned, the old or the new one, never a mixture
// (sealed_test.go).
package sealed
