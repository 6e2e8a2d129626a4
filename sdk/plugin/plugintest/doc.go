// Package plugintest makes targets of the conformance kit (sdk/storage/storagetest)
// that lie behind a lane: By puts a lane of any carrier, within this process, before
// any other target; Binary runs a plugin's executable as a
// broker does.
//
// A store that passes the kit directly and fails it here has met a fault of the
// lane, and the other way round: running both tells which.
package plugintest
