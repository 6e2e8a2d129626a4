// Package streams makes a transport of a network that connects streams of bytes: TCP, or
// whatever else gives a net.Conn. The network dials and accepts connections and gives the
// certificates; a Transport of this package proves who is at both ends of one, says the
// hellos, and runs the links. So the two parts can be in two processes: a plugin connects,
// and its broker, which is given the sockets, runs the links (package plugin).
//
// It owns: whom to believe, the bounds of what strangers and links that nobody accepts may
// take, and the start and end of a transport. What goes over a connection, and how a link
// ends, is package frame's. It never dials, listens or reads a file, and needs the standard
// library alone.
//
// # Who is believed
//
// What Network.Capabilities says of Proof is demanded of every peer. ProofNone: nothing;
// frames carry checksums then, since nothing else does. ProofMember: mutual TLS 1.3, with a
// certificate of an authority among Material.Roots, for servers and clients; names of hosts
// do not matter. ProofNode: also, that it has the URI of its node, brokerd://node/3. A
// certificate that names a node is believed for that one alone in any case.
//
// # Bounds
//
// Connections that have proved nothing are bounded in number (strangersMax; the oldest
// goes for a new one, so that nobody who is slow keeps peers out), in time (helloTimeout) and
// each to strangerBytesMax. Links that nobody accepts are bounded by acceptMax for each lane.
//
// The conformance kit is run on it by transport-tcp, and by package plugintest with a
// process between the two parts.
package streams
