package plugin

import (
	goplugin "github.com/hashicorp/go-plugin"
)

// ProtocolVersion is the major version of the contract that this package
// speaks: that of the packages brokerd.plugin.v1, brokerd.storage.v1 and
// brokerd.transport.v1.
const ProtocolVersion = 1

// The kinds of plugin.
const (
	KindStorage   = "storage"   // it serves logs
	KindTransport = "transport" // it carries messages between brokers

	// kindAny is what go-plugin is told: it does not pass it on, and each says what it is.
	kindAny = KindStorage
)

// MaxHandle is the greatest handle that a plugin may give, so that its host has
// room to mark from which process a handle came.
const MaxHandle = 1<<40 - 1

const (
	// cookieKey and cookieValue tell a plugin that a broker started it. They
	// protect against mistakes, not against anybody.
	cookieKey   = "BROKERD_PLUGIN_COOKIE"
	cookieValue = "2f0cf8b9-storage-and-transport"

	// stdinWatchKey is set to 1 when standard input is a pipe whose end means
	// that the broker is gone.
	stdinWatchKey = "BROKERD_PLUGIN_STDIN_WATCH"

	// socketKey names the descriptor that the plugin inherits as its end of the
	// fast lane.
	socketKey = "BROKERD_PLUGIN_SOCKET"

	// laneSocket is what the fast lane is called among a plugin's lanes.
	laneSocket = "socket"
)

// handshake is what both sides must agree on before anything else.
func handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		ProtocolVersion:  ProtocolVersion,
		MagicCookieKey:   cookieKey,
		MagicCookieValue: cookieValue,
	}
}
