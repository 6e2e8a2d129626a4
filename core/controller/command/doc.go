// Package command is how a broker's commands reach the active controller on another
// node, and its answers come back: core/controller's operations and answers as bytes.
//
// It owns the encoding, the list of operations that have one, and the names by which
// sentinel errors cross. It never decides about a command, and never sends one.
//
// # Layout
//
// An operation is a byte, the version, and a JSON object with one member, whose name is
// the operation's type and whose value is the operation:
//
//	1 {"DeleteTopics":{"Topics":[{"Name":"a"}]}}
//
// An answer is the version and a JSON object of Answer's fields. Fields have their names
// of Go, and those that are zero are left out; [n]byte is hexadecimal, []byte is base64, a
// nil pointer, slice or error within a list or map is null. An error is what it says, and
// the names of the sentinels in core/model that it wraps:
//
//	1 {"Err":{"Text":"the topic t is gone","Is":["ErrUnknownTopicID"]}}
//
// Commands are rare, so that text is fast enough, and can be read in a trace.
//
// Fields and operations may be added within a version. Of an operation, what a reader does
// not know is an error, since it would do something else than was asked; of an answer, it
// is left away. What names a field, an operation or a sentinel is therefore never changed.
//
// # Invariants, and where they are tested
//
//   - What is decoded is what was encoded, nil and empty slices told apart, and errors wrap
//     the same sentinels: TestOpsComeBack, TestAnswersComeBack.
//   - Every operation of core/controller, and every sentinel of core/model, has its name
//     here: TestEveryOpIsListed, TestEverySentinelIsListed. Every type within them can be
//     encoded: TestEveryTypeCanCross.
//   - Bytes of a peer cause an error at worst: no panic, and no more memory than a fixed
//     multiple of their number, which is bounded: FuzzDecode, TestDecodeIsStrict.
package command
