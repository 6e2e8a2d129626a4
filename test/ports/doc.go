// Package ports finds ports on loopback for the servers of tests and benchmarks. It keeps
// none of them: somebody else may take one before its server does.
//
// All are below those that kernels give to outgoing connections. A client that dials a server
// between two of its lives could be given the server's own port otherwise, be connected to
// itself, and keep the server from coming back.
package ports
