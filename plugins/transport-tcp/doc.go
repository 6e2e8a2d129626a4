// Package transporttcp carries the messages between brokers over TCP. It is the plugin
// transport-tcp.
//
// It owns: the plugin's settings, sockets and how they are set, the certificates, and the
// listener. What goes over a connection is package frame's, and who is believed, and the
// bounds of strangers, package streams'. A link is one connection; it is never dialled again
// here, that is the broker's. It never imports the broker's core.
//
// # Security
//
//   - secret: all nodes know one secret, of 32 characters at least. The key of an
//     authority is derived from it (HKDF-SHA256, Ed25519), the same at each node; each
//     node issues itself certificates by it, which are good for a few days, and mutual TLS 1.3
//     does the rest. Who has the secret can say that it is any node.
//   - tls: mutual TLS 1.3 with certificates of the operator's. A peer needs one of an
//     authority in the file of roots, for servers and clients; names of hosts do not matter, so
//     the authority has to be the cluster's own. A certificate with the URI
//     brokerd://node/3 is believed for node 3 alone. The files are read again each
//     minute, so that certificates can be renewed.
//   - plaintext: nothing is proved or hidden, only where it is asked for by this name. Frames
//     carry checksums then, since nothing else does.
//
// A stranger who connects can check guesses of the secret at home, against what he is shown
// of a certificate. So the secret has to be drawn, not thought of: openssl rand -base64 32.
//
// # Bounds
//
// What is under way on a link lies in the buffers of its two sockets. Where the system lets
// those grow beyond half of transport.LinkBytesMax, they are set to that, or to what
// the system permits.
//
// # What is noticed
//
// A process that dies has its connections closed by its kernel, and dials to it refused. An
// idle connection whose host is gone ends by TCP's keep-alive after 25 s. One on which
// something is on the way goes on for as long as the kernel sends it again: brokers set their
// own times. TCP_USER_TIMEOUT would shorten that, and would end links whose peers are merely
// slow to receive.
//
// The conformance kit is run in each way of security (conformance_test.go), and what is
// particular to TCP is in the tests beside it.
package transporttcp
