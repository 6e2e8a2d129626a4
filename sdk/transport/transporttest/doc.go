// Package transporttest is the conformance kit of package transport: it checks a
// transport, through whatever reaches it, against each sentence of the contract.
//
// # To run it
//
// The author of a transport writes one test, in the package of the transport:
//
//	func TestConforms(t *testing.T) {
//		transporttest.Run(t, transporttest.Target{
//			Name: "transport-tcp, shared secret",
//			Open: func(ctx context.Context, id transport.Identity) (transport.Transport, error) {
//				settings := []byte(`{"listen": "127.0.0.1:0", "secret": "of the test"}`)
//				return provider.Open(ctx, transport.Config{Settings: settings, Identity: id})
//			},
//			Kill:     ..., // ends one as kill -9 of its process does
//			Outsider: ..., // opens one with another secret
//			Stranger: func(ctx context.Context, endpoint string) (net.Conn, error) {
//				return new(net.Dialer).DialContext(ctx, "tcp", endpoint)
//			},
//		})
//	}
//
// and one such test for each way of configuring it that changes what goes over the network
// (each way to authenticate, each carrier). Run it with -race also.
//
// Every case is a subtest: `go test -run TestConforms/order`. A case that fails says what was seen,
// and quotes the sentence of package transport that does not allow it. A case is
// skipped, with the reason, where the Target lacks what the case needs, or the transport's
// Capabilities do not promise what it is about; it then says nothing about the transport.
// Nothing but Open is needed to begin with; a transport that is finished has as few skipped
// cases as its network permits.
//
// The kit measures: memory, processor time, goroutines left behind, and how soon a peer's
// death is seen. Run nothing beside it in the same process, so no t.Parallel. Where the
// transport runs in another process, Target.Usage says what that one uses. Where the
// contract gives a time, the best of a few attempts has to keep it, since the machine may
// be busy; where it says "soon", Options.Patience is how long the kit waits.
//
// Check runs the same cases without go test.
//
// # What the package promises
//
// It never looks behind the contract: a case may fail a transport for what package
// transport says, and for nothing else; a test holds every quoted sentence to the
// contract's text. What the contract permits and a network that nobody disturbs does not do
// (a message that never arrives, a link that is silent for ever) fails a transport here.
// That the cases find what they are for is checked by transports that are broken in one
// way each (broken_test.go), and that they ask for no more than the contract by the
// memory network, which passes.
package transporttest
