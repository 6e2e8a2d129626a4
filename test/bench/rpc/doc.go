// Package rpc is a connection to a broker on which one request is under way at a time,
// for the programs that measure: what they ask beside the load. It owns framing and
// correlation ids, and the few requests that every measurement begins with. It never
// retries by itself but where its comment says so. To a Conn one broker leads everything;
// a Cluster asks those who lead, as a topic's making found them.
package rpc
