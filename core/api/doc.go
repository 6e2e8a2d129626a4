// Package api answers Kafka requests: one file for each API key, which states
// the versions served and what is left out.
//
// It decodes what the client asked, checks it, authorizes it, asks the owner of
// the state through the interfaces of ports.go, and encodes the answer with the
// protocol's errors. It owns fetch sessions (KIP-227), the block of producer IDs
// that it hands out, and nothing else. It never touches a log, a socket or the
// metadata log itself.
//
// Invariants, and where they are tested:
//   - Every version that core/wire advertises is answered, in that version
//     (versions_test.go).
//   - No request panics, whatever its bytes (FuzzHandle).
//   - Appends are queued in the order in which requests are begun
//     (key_000_produce_test.go).
//   - Questions to the group coordinator are asked in the order in which requests are
//     begun, and an answer that nobody waits for any more holds nobody up
//     (TestGroupQuestionsKeepOrder).
//   - A topic that a client may not see looks, to who did not name it, like one
//     that does not exist; a name is refused before it is looked up (the 'denied'
//     and 'secret' cases of each key's test).
//   - The settings that are shown are those that count
//     (TestDescribedValuesResolve).
//   - A fetch session answers what changed and every error
//     (fetch_sessions_test.go).
package api
