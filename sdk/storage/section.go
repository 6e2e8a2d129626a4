package storage

import "os"

// Sections is what a Store may offer its host beside Read, where it reads files of
// this machine itself, as the host of Files does: to say where batches lie, so that
// their bytes go from the file to a socket without being read.
type Sections interface {
	// ReadSection answers a read with the file that the batches are in, if it can do
	// so at once: it never waits, and looks at no bytes. False: use Read. What it gives
	// begins with the batch that Read's answer would begin with and ends with a whole
	// batch within the limits, though perhaps an earlier one than Read's; and all
	// of it has been checked, as for Read, since it was written or last read.
	ReadSection(req ReadRequest) (Section, bool)
}

// Section is whole batches, back to back, as they lie in a file.
type Section struct {
	// File is opened for reading, and shared by many: its offset is nobody's. It stays
	// open, and the batches as they are, until Owner.Release.
	File *os.File
	// Pos is where the first batch begins, and Bytes how many they are.
	Pos   int64
	Bytes int
	// Next is the offset after the last batch.
	Next int64
	// Owner is told once that the section is not used any more.
	Owner SectionOwner
}

// SectionOwner is who gave a section.
type SectionOwner interface {
	// Release ends the use of a section. Damaged: its bytes could not be had from the
	// file. What of them is in a socket already may be read from the file's memory
	// later, see Files.
	Release(damaged bool)
}
