package replica

import (
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Input is what a shard can be stepped with. It is made by this package.
type Input struct {
	kind    inputKind
	replica *replica
	request *request
	stored  *appendCall
	parcel  *parcel
	rare    *rare
}

// rare is of the inputs that come so seldom that those that come often need not carry
// room for it.
type rare struct {
	in      partition.Input
	ask     *producersQuery
	lag     *lagQuery
	assign  *assignment
	opened  *openedLog
	dir     *Directory
	handle  storage.Handle
	link    *link
	read    *caughtUp
	altered []alteration
	err     error
}

type inputKind int8

const (
	inputMachine   inputKind = iota // rare.in, for replica's machine
	inputRequest                    // request, for replica's machine
	inputProducers                  // ask, of replica's machine
	inputAssign                     // metadata says something about replica
	inputRemove                     // metadata gave replica's log up: delete it
	inputOpened                     // a log was opened, or not
	inputKept                       // it was, and went back, which is kept
	inputClosed                     // handle was closed
	inputDeleted                    // a log was deleted, or not: err
	inputStored                     // stored, a call for replica's log, has been answered
	inputLag                        // lag, of all replicas
	inputLeased                     // the broker's lease has been renewed
	inputAiling                     // dir's store serves, or not
	inputRestarted                  // the process of dir's store was started again
	inputStop                       // the broker stops
	inputLinkUp                     // there is a link
	inputLinkDown                   // a link has ended
	inputParcel                     // parcel, of a message
	inputFeed                       // there may be credit again on link
	inputRead                       // read, for a follower of replica
	inputAltered                    // altered, by the controller or not
	inputThrottles                  // the rates of throttles have changed
)

// assignment is what metadata says of a replica.
type assignment struct {
	leads     bool
	session   partition.Session // below those of this life of the broker
	lead      partition.Lead    // where it leads
	follow    partition.Follow  // where it does not
	settings  TopicSettings
	throttled throttledReplicas
}
