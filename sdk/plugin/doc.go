// Package plugin carries the contracts of the sdk between a broker and a plugin
// process: it serves a provider from a plugin's main, launches such a process,
// and adapts the connection to the same Go interface again.
//
// A plugin's author needs one call:
//
//	func main() {
//		if err := plugin.ServeStorage(provider{}); err != nil {
//			fmt.Fprintln(os.Stderr, err)
//			os.Exit(1)
//		}
//	}
//
// The package owns the handshake, the gRPC lane (control by unary calls, record
// bytes by one stream of frames, see sdk/proto/storage/v1), deadlines, and the
// life of one process. It never restarts a process (core/pluginhost does),
// never reads record batches, and never decides which plugin to run.
//
// # Invariants
//
//   - Every call that a Store was given completes exactly once: with the
//     plugin's answer, with ErrUnknown when its deadline passes, or, when the
//     process or the lane dies, with ErrUnknown for appends and ErrGone for all
//     else. (lane_test.go, process_test.go)
//   - Appends of one handle complete in the order of the calls. After one ended
//     with ErrUnknown, those in flight behind it do too, and every later one
//     fails until the log is opened again. (lane_test.go)
//   - The memory of what is in flight is bounded on both sides, in bytes and in
//     number. (lane_test.go)
//   - The class of an error is the same on both sides. (convert_test.go)
//   - Frames are, byte for byte, what protobuf makes of the message Frame.
//     (codec_test.go)
//   - A process that was launched does not outlive its launcher by more than
//     100 ms, is killed through its own child handle only, and is reaped before
//     Done is closed. (process_test.go)
package plugin
