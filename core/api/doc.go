// Package api answers Kafka requests: one file for each API key, which states
// the versions served and what is left out.
//
// It decodes what the client asked, checks it, authorizes it, asks the owner of
// the state through the interfaces of ports.go, and encodes the answer with the
// protocol's errors. It owns fetch sessions and nothing else. It never touches
// a log, a socket or the metadata log itself.
package api
