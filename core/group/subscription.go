package group

import "encoding/binary"

// consumerProtocol is the protocol type of groups of consumers, whose metadata the
// coordinator may read: what every version of it begins with, the version and the
// topics.
//
//	version int16 | topics int32 | each: length int16, name | ...
const consumerProtocol = "consumer"

// readTopics adds the topics of a consumer's metadata, or reports that it is none.
func readTopics(metadata []byte, topics map[string]struct{}) bool {
	if len(metadata) < 6 || int16(binary.BigEndian.Uint16(metadata)) < 0 {
		return false
	}
	count, rest := int32(binary.BigEndian.Uint32(metadata[2:])), metadata[6:]
	if count < 0 {
		return false
	}
	for range count {
		if len(rest) < 2 {
			return false
		}
		length := int(int16(binary.BigEndian.Uint16(rest)))
		if length < 0 || length > len(rest)-2 {
			return false
		}
		topics[string(rest[2:2+length])] = struct{}{}
		rest = rest[2+length:]
	}
	return true
}
