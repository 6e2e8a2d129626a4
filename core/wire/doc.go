// Package wire is the Kafka protocol's outer shape: what a request and its reply
// are between server and api, the table of API keys and versions that are
// served, and the table of error codes.
//
// It owns those tables and how a request's bytes become a kmsg.Request, or, of those
// that come most often, a value of our own that is used again (Produce, Fetch,
// OffsetCommit). It never reads a socket, never answers, and never looks inside a
// request's body beyond choosing its codec (else franz-go's kmsg) and refusing bodies
// whose decoding would cost more than their bytes. Nor does it read records to answer
// with them: what lies in a file is handed on as such (Splice).
//
// Invariants, and where they are tested: what is advertised is what is served,
// but for Produce 0 to 2 (versions_test.go); every sentinel of core/model has a
// code (errors_test.go); decoding never panics and allocates in proportion to
// the bytes that are there, whatever a count claims (decode_test.go,
// FuzzDecode). What is read and written without the codec is what the codec reads and
// writes (produce_test.go, fetch_test.go, offsetcommit_test.go, FuzzProduceRead,
// FuzzFetchRead, FuzzOffsetCommitRead), and takes no memory in the usual run
// (TestProduceAllocatesNothing, TestFetchIsUsedAgain, TestOffsetCommitAllocatesNothing).
package wire
