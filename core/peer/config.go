package peer

import (
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

const (
	// ControlBytesMax is the largest message, with its header, on a control link.
	ControlBytesMax = 8 << 20
	// BulkBytesMax is the largest message, with its header, on a bulk link.
	BulkBytesMax = transport.MessageBytesMax
	// HelloBytesMax is the longest first message of a data link that is read.
	HelloBytesMax = 64

	// acceptedMax is how many links of one lane one node may have dialled to this one; beyond
	// it, the oldest is ended. One is enough, and an old one may not have been found dead.
	acceptedMax = 4
	// acceptedAllMax is how many links all nodes together may have dialled to this one.
	acceptedAllMax = 1024
	// targetsMax is how many nodes and endpoints this node has something for at one time.
	targetsMax = 1024
	// asksMax is how many questions to one node may be without an answer, and questionsMax is
	// how many of one link the owner may be asked at one time.
	asksMax, questionsMax = 256, 256
	// windowBytes and windowMax bound what of one link is with the driver and not taken yet,
	// beside one larger message.
	windowBytes, windowMax = 1 << 20, 128
	// queueMax is how many messages wait on one link at most.
	queueMax = 16 << 10
	// slowestBytesPerSecond is what a network carries at least that is not taken for dead.
	slowestBytesPerSecond = 1 << 20
)

// Config is what a Machine is made from.
type Config struct {
	// Identity is who this node is, as its transport says too.
	Identity transport.Identity
	// Proof is what every peer is to have proved at least.
	Proof transport.Proof

	// BackoffMin and BackoffMax are between which the pause grows after a dial that has
	// failed, or a link that has ended before StoodMin.
	BackoffMin, BackoffMax time.Duration
	StoodMin               time.Duration
	// DialMax is how long a dial, and the first message of a peer's data link, may take.
	DialMax time.Duration
	// PingAfter is how long a peer may say nothing before it is asked whether it is there,
	// and SilenceMax is how long after that its link is ended.
	PingAfter, SilenceMax time.Duration
	// IdleMax is how long a control or bulk link is kept that carries nothing.
	IdleMax time.Duration
	// PostMax is how old a post may be when the link that it waits for is made.
	PostMax time.Duration
	// QuestionMax is how long the owner may take to answer.
	QuestionMax time.Duration

	// QueueBytesMax is how many bytes of posts, questions or answers wait for one link, beside
	// one message that is larger: beyond it, the oldest posts are dropped, and then what is to
	// be sent. StreamBytesMax is the same for a stream, which ends.
	QueueBytesMax, StreamBytesMax int
}

// Defaults returns the configuration of a node, but for who it is.
func Defaults() Config {
	return Config{
		BackoffMin:     50 * time.Millisecond,
		BackoffMax:     2 * time.Second,
		StoodMin:       time.Second,
		DialMax:        5 * time.Second,
		PingAfter:      time.Second,
		SilenceMax:     4 * time.Second,
		IdleMax:        time.Minute,
		PostMax:        time.Second,
		QuestionMax:    time.Minute,
		QueueBytesMax:  8 << 20,
		StreamBytesMax: 256 << 20,
	}
}

// Validate says what is wrong with it.
func (c Config) Validate() error {
	if c.Identity.NodeID < 0 {
		return fmt.Errorf("node %d cannot have peers", c.Identity.NodeID)
	}
	if c.BackoffMax < c.BackoffMin {
		return fmt.Errorf("the longest back-off, %s, is shorter than the first, %s", c.BackoffMax, c.BackoffMin)
	}
	for _, d := range []time.Duration{c.BackoffMin, c.StoodMin, c.DialMax, c.PingAfter, c.SilenceMax, c.IdleMax, c.PostMax, c.QuestionMax} {
		if d <= 0 {
			return errors.New("every time of a link is above zero")
		}
	}
	if c.QueueBytesMax <= 0 || c.StreamBytesMax <= 0 {
		return errors.New("every queue has room for something")
	}
	return nil
}
