// Package batch checks record batches that producers send, reads the records of
// batches that are stored, and builds batches.
//
// It owns the rules that need nothing but the batch and its topic's settings.
// Rules that need a producer's earlier batches (sequences, epochs) belong to
// core/partition. It never changes a record: what a producer compressed is stored as it
// came, unless the topic has a codec of its own, to which Recompress takes the same
// records, byte for byte. The only bytes that Check may change are the timestamp type, the max
// timestamp and the CRC over them; offsets and leader epoch are the leader's to
// stamp (sdk/recordbatch.Stamp).
//
// Invariants, and where they are tested:
//   - A batch that Check passed holds exactly the records that its header says,
//     with offset deltas 0, 1, 2, ..., each well formed (TestCheck,
//     TestRecordLayout, FuzzCheck).
//   - Any changed bit in the range of the CRC is refused (TestFlippedBit).
//   - No claimed size is believed: memory grows with bytes that arrived, and
//     decompression stops at the limit (TestBomb, TestClaimedSizes).
//   - Recompressing changes the codec and nothing else, and stays within the topic's
//     limits (TestRecompress, TestRecompressLimits).
//   - Checking allocates nothing (TestCheckAllocatesNothing). What is looked at many
//     records at a time is what would be found one by one (TestSweepAgreesWithNext,
//     TestSweptRecordsAreJudged, FuzzSweep).
//   - Batches as real clients encode them pass, in every codec (TestGolden).
//
// Sources: Kafka's message format; KIP-98 (producer fields), KIP-110 (zstd),
// KIP-467 (errors by record), KIP-937 (bounds of timestamps).
package batch
