// Package wire is the Kafka protocol's outer shape: request and response
// headers, the table of API keys and versions that are served, and the table of
// error codes.
//
// It owns those tables. It never reads a socket and never looks inside a
// request's body beyond choosing its codec (franz-go's kmsg).
package wire
