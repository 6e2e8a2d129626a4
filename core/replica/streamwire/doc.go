// Package streamwire is the encoding of what brokers say to each other over a stream of
// replication: a follower that has dialled its leader, and the leader.
//
// It owns the layout, which is drawn beside the functions that write it. It never decides
// what a message means, keeps nothing, and believes no number in a message before it has
// seen the bytes that the number speaks of: what cannot be right is an error, never a panic
// (FuzzSections).
//
// A message is sections, back to back:
//
//	kind   uint8
//	bytes  uint32  of what follows
//	body
//
// All numbers are big-endian. A partition is the topic's ID (16 bytes) and its index
// (int32). The first section in each direction is a hello, whose version is that of all
// that follows.
package streamwire
