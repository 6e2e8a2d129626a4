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
// The package owns the handshake, the lanes, deadlines, the life of one process, and
// the host's part of files that a plugin lends. It never restarts a process
// (core/pluginhost does), never decides which plugin to run, and looks at record
// batches only to write under a grant what Append would take, and to serve from a
// lease what Read would return: headers, CRC, order.
//
// # Carriers
//
// Control goes by unary gRPC calls. Record bytes go in units (see sdk/proto/storage/v1)
// over a carrier, the best that both sides have:
//
//   - gRPC: one stream of frames. Every plugin has it.
//   - socket: the fast lane, a pair of connected sockets of which the plugin inherits
//     one end, so that nobody else can connect and descriptors can be passed.
//   - files: over the socket the plugin lends its files (storage.Files). The host writes
//     the ends of logs under grants and reads stretches of files under leases; the
//     plugin hears of what was written some time later, and at once when somebody needs
//     it to know.
//
// A Store is the same with each, and its callers don't know. A log begins without a
// grant and asks for one when it has been appended to some times; what does not fit a
// grant is appended without.
//
// # Transports
//
// A plugin of kind transport is served by ServeTransport and used by OpenTransport, over the
// same lanes, with units of their own (sdk/proto/transport/v1). Where it gives connections
// (streams.Provider) and the socket is there, their descriptors are passed: the links are the
// host's, which runs them with package streams, and outlive the process. Otherwise the plugin
// runs the links, and their messages are units: small ones by a window for each direction of a
// link, large ones one at a time. Neither side's reader ever waits for a link.
//
// # Locks
//
// What is known of one handle is guarded by its hostLog.mu, which is also the turn to
// write. The order of locks is told at hostFiles. No completion is called with one held.
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
//     number. (lane_test.go) So are the descriptors of what is lent.
//     (hostfiles_test.go)
//   - A descriptor is used for the unit that it came with, or not at all.
//     (socketlink_test.go)
//   - What was acknowledged under a grant is found by the next Open, also when the
//     plugin never heard of it; what a write left that failed is overwritten or cut by the
//     plugin. (files_test.go)
//   - Nothing is written under a grant, or served from a lease, while a call changes
//     the log, after its log was opened again or deleted, or after Abandon, which lets go
//     of the store's lock as its last act. (files_test.go, hostfiles_test.go)
//   - No byte is served from a lease that its CRC and its place in the order of offsets
//     do not vouch for. (files_test.go)
//   - Each batch that was appended or read is counted once, by the way that it went, and
//     each grant's end by its reason, over all processes of a store. (traffic_test.go)
//   - The class of an error is the same on both sides. (convert_test.go)
//   - What a transport promises holds over each carrier, in one process and in two.
//     (plugintest, plugins/transport-tcp)
//   - A plugin keeps no copy of a connection that it has passed, and what nobody waits for any
//     more is closed. (plugins/transport-tcp)
//   - Units of a transport that make no sense end the lane, and never cause a panic, nor memory
//     of a size that they claim. (transportunit_test.go)
//   - Frames are, byte for byte, what protobuf makes of the message Frame.
//     (codec_test.go)
//   - A process that was launched does not outlive its launcher by more than
//     100 ms, is killed through its own child handle only, and is reaped before
//     Done is closed. (process_test.go)
package plugin
