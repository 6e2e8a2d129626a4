// Package recordbatch knows the header of Kafka's record batch, version 2: its
// layout, how to find where a batch ends, and how to check it. It never looks
// at records, never decompresses and never allocates by what a batch claims.
//
// Both sides of the storage contract use it. The core's validation of records
// is in core/batch.
//
//	offset size
//	     0    8  base offset          set by the leader, outside the CRC
//	     8    4  batch length         bytes after this field, outside the CRC
//	    12    4  partition leader epoch     set by the leader, outside the CRC
//	    16    1  magic                2, outside the CRC
//	    17    4  CRC-32C              of all that follows
//	    21    2  attributes           codec (0-2), timestamp type (3), transactional (4), control (5), delete horizon (6)
//	    23    4  last offset delta
//	    27    8  base timestamp       milliseconds since 1970
//	    35    8  max timestamp
//	    43    8  producer ID          or -1
//	    51    2  producer epoch
//	    53    4  base sequence        or -1
//	    57    4  record count
//	    61       records
//
// Source: Kafka's message format documentation, KIP-98 and KIP-101.
package recordbatch
