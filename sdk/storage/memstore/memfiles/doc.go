// Package memfiles is the reference of storage.Files: a memstore whose logs lie
// in files as well, which it lends. Where the words of that part of the contract
// leave a doubt, read what happens here.
//
// The memstore inside is the truth of all that the store knows: it checks, reads,
// retains, recovers. This package keeps the bytes of every log a second time, in
// files of a directory, and knows where in them each batch lies. A granted write
// reaches the memstore when it is told, or when the log is opened again, and is
// read from the file for that: nothing that a host says of its bytes is believed.
//
// A Disk is what outlives a Store, as in memstore: the files are found again by
// what the Disk remembers of them, so that nothing but the bytes of batches is in
// them. It serves tests, one call at a time, and is no store for records that
// matter.
//
// Invariants, checked by package storagetest and this package's own tests:
//   - A file is cut only where no lease ever reached, and used again only when there
//     never was a lease of it. When a log is opened all in its files counts as leased.
//   - A file that truncation or a replacement took from the log is never used
//     again; one that a trim or retention took may become the log's next.
//   - Behind the last batch that is known lie batches that were written under the
//     latest grant of the log, zeros, or what can not follow in offset.
package memfiles
