// Package peers runs core/peer over the transports that come with the broker, on loopback.
// It owns tests alone.
package peers
