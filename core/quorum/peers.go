package quorum

import (
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// Address is where a node can be asked.
type Address = model.Address

// Peers carries this node's messages to other nodes. Nothing of it waits. A message may be
// lost, late, doubled, and overtaken by later ones.
type Peers interface {
	// Post sends a message to a node; bulk, so that it holds up none that is not.
	Post(to Address, message []byte, bulk bool)
	// Ask puts a question, and calls done once, from any goroutine, possibly before Ask
	// returns: with the answer, or after timeout at latest with an error. One that wraps
	// transport.ErrRefused says that the question has reached nobody.
	Ask(to Address, question []byte, timeout time.Duration, done func(answer []byte, err error))
}

// ReachedAt says where other members reach this node, in place of Config.Endpoint: whoever
// needs to know the node's identity before there is an endpoint. It is for before Run alone.
func (n *Node) ReachedAt(endpoint string) { n.cfg.Endpoint = endpoint }
