package group

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// group is one group: its members, and its committed offsets.
type group struct {
	id    string
	index int // in Machine.order
	state model.GroupState
	since int64 // when it came to that state, in milliseconds; -1: an old record does not say

	generation   int32
	loadedAt     int32  // its generation when it was loaded
	protocolType string // "": it has never had a member
	protocol     string // chosen for the generation
	leader       string

	members  []*member // in the order of joining
	byID     map[string]*member
	static   map[string]*member // by instance ID
	pending  map[string]*pending
	support  map[string]int // how many members offer a protocol
	joining  int            // members that wait in Join
	unsynced int            // members of the generation that have not asked for their assignment

	// initial: members that join still put off the first rebalance, for no longer than
	// left. more: one has, since that was last looked at.
	initial, more bool
	left          time.Duration
	// alarm ends the waiting for members to join while PreparingRebalance, and for
	// them to sync after that.
	alarm     alarm
	assigning *write // the generation's assignment, on its way to the log

	// subscribed are the topics of all members, where they could be read.
	subscribed map[string]struct{}
	readable   bool
	topicsKept int // what that is counted as

	offsets map[model.TopicPartition]committed
	// underWay counts the writes under way that set or remove an offset.
	underWay map[model.TopicPartition]int
	// committing is the last commit that is under way.
	committing *commitment
	writes     int  // under way
	recorded   bool // its metadata may be in the log
	behind     bool // its metadata could not be written when it became empty
	deleting   bool // its end is on its way to the log
	dropped    bool // it is none of the machine's any more
	kept       int  // bytes that are counted for all of it
	widest     widths
}

// member is one member.
type member struct {
	group      *group
	id         string
	instance   string // "": a dynamic member
	clientID   string
	clientHost string
	protocols  []model.GroupProtocol
	session    time.Duration
	rebalance  time.Duration
	assignment []byte
	kept       int // bytes that are counted for it

	join  request
	sync  request
	fresh bool // it has never been answered a Join
	// loaded: it is as the log has it, and has not been heard of since. The log may lack
	// an ID that it was given in a rebalance.
	loaded bool
	synced bool // it has asked for its assignment
	alarm  alarm
}

// request is one that may wait.
type request struct {
	id    RequestID
	waits bool
	skips bool // Join: its client understands SkipAssignment
}

// pending is who was given an ID and has not joined with it yet.
type pending struct {
	group *group
	id    string
	alarm alarm
}

// committed is a committed offset, as it is in the log.
type committed struct {
	offset   int64
	epoch    model.LeaderEpoch
	topicID  model.TopicID
	metadata string
	at       int64 // milliseconds
	expires  int64 // milliseconds; -1: by the broker's retention
	doomed   bool  // its topic is gone, and its removal could not be written
}

func newGroup(id string) *group {
	g := &group{
		id:      id,
		state:   model.GroupEmpty,
		byID:    make(map[string]*member),
		static:  make(map[string]*member),
		pending: make(map[string]*pending),
		support: make(map[string]int),
		offsets: make(map[model.TopicPartition]committed),
	}
	g.alarm.owner = g
	return g
}

// become changes the state.
func (g *group) become(now time.Time, state model.GroupState) {
	g.state, g.since = state, now.UnixMilli()
}

// empty reports that there is nobody, and that nobody is about to come.
func (g *group) empty() bool {
	return g.state == model.GroupEmpty && len(g.pending) == 0
}

// add takes a member in.
func (g *group) add(mem *member) {
	mem.group = g
	mem.alarm.owner = mem
	g.members = append(g.members, mem)
	g.byID[mem.id] = mem
	if mem.instance != "" {
		g.static[mem.instance] = mem
	}
	if g.leader == "" {
		g.leader = mem.id
	}
	g.count(mem.protocols, 1)
}

// remove takes a member out; nobody may wait for it.
func (g *group) remove(mem *member) {
	g.members = slices.DeleteFunc(g.members, func(other *member) bool { return other == mem })
	delete(g.byID, mem.id)
	g.byID = trim(g.byID, &g.widest.byID)
	if mem.instance != "" {
		delete(g.static, mem.instance)
		g.static = trim(g.static, &g.widest.static)
	}
	g.count(mem.protocols, -1)
	if g.leader == mem.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
	if g.settling() && !mem.synced {
		g.unsynced--
	}
}

// settling reports that members are to ask for the assignment of this generation.
func (g *group) settling() bool {
	return g.state == model.GroupCompletingRebalance || g.state == model.GroupStable
}

// rename gives a static member another ID.
func (g *group) rename(mem *member, id string) {
	delete(g.byID, mem.id)
	if g.leader == mem.id {
		g.leader = id
	}
	mem.id, mem.loaded = id, false
	g.byID[id] = mem
}

// offer changes what a member offers.
func (g *group) offer(mem *member, protocols []model.GroupProtocol) {
	g.count(mem.protocols, -1)
	mem.protocols = protocols
	g.count(mem.protocols, 1)
}

func (g *group) count(protocols []model.GroupProtocol, by int) {
	for i := range protocols {
		name := protocols[i].Name
		if g.support[name] += by; g.support[name] == 0 {
			delete(g.support, name)
			g.support = trim(g.support, &g.widest.support)
		}
	}
}

// supports reports whether a member with these protocols can come in: one of them is
// offered by all others too.
func (g *group) supports(protocolType string, protocols []model.GroupProtocol) bool {
	if g.state == model.GroupEmpty {
		return protocolType != "" && len(protocols) > 0
	}
	return protocolType == g.protocolType && slices.ContainsFunc(protocols, func(p model.GroupProtocol) bool {
		return g.support[p.Name] == len(g.members)
	})
}

// elect chooses the protocol: each member votes for the first of its own that all of
// them offer. Of equal ones the first member's choice is taken.
func (g *group) elect() string {
	votes := make(map[string]int, 1)
	for _, mem := range g.members {
		for i := range mem.protocols {
			if name := mem.protocols[i].Name; g.support[name] == len(g.members) {
				votes[name]++
				break
			}
		}
	}
	best := ""
	for i := range g.members[0].protocols {
		if name := g.members[0].protocols[i].Name; votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// rebalanceTimeout is the longest of the members'.
func (g *group) rebalanceTimeout() time.Duration {
	var most time.Duration
	for _, mem := range g.members {
		most = max(most, mem.rebalance)
	}
	return most
}

// allJoined reports that nobody has to be waited for.
func (g *group) allJoined() bool {
	return g.joining == len(g.members) && len(g.pending) == 0
}

// isSubscribed reports whether the members read a topic, or may: what cannot be
// known counts as subscribed.
func (g *group) isSubscribed(topic string) bool {
	if !g.readable {
		return g.protocolType == consumerProtocol
	}
	_, ok := g.subscribed[topic]
	return ok
}

// subscribe reads what the members are subscribed to, as long as that fits.
func (g *group) subscribe(fits func(bytes int) bool) {
	g.subscribed, g.readable = nil, false
	if g.protocolType != consumerProtocol {
		return
	}
	topics := make(map[string]struct{})
	for _, mem := range g.members {
		if !readTopics(mem.metadata(g.protocol), topics) || !fits(len(topics)*topicBytes) {
			return
		}
	}
	if !fits(sizeOfTopics(topics)) {
		return
	}
	g.subscribed, g.readable = topics, true
}

// noGeneration is of a request that says nothing of the sender's generation.
const noGeneration = -1

// check finds the member that a request is from. generation is what it believes in.
func (g *group) check(id, instance string, generation int32) (*member, error) {
	if instance != "" {
		mem, ok := g.static[instance]
		if !ok {
			return nil, fmt.Errorf("group %q has no instance %q: %w", g.id, instance, model.ErrUnknownMemberID)
		}
		if mem.id != id {
			return nil, g.mistaken(mem, generation)
		}
	}
	mem, ok := g.byID[id]
	if !ok {
		return nil, fmt.Errorf("group %q has no member %q: %w", g.id, id, model.ErrUnknownMemberID)
	}
	mem.loaded = false
	return mem, nil
}

// mistaken is for who uses an instance ID with a member ID that is not its. That is
// fenced, which clients take as final, unless it may be the later one: given in a
// rebalance, and lost with the coordinator that gave it. Then it is to join anew.
func (g *group) mistaken(mem *member, generation int32) error {
	if mem.loaded && (generation == noGeneration || generation > g.loadedAt) {
		return fmt.Errorf("group %q does not know this member ID of instance %q: %w", g.id, mem.instance, model.ErrUnknownMemberID)
	}
	return fmt.Errorf("instance %q of group %q is another member now: %w", mem.instance, g.id, model.ErrFencedInstanceID)
}

// forgetMembership makes it a group that has offsets and nothing else.
func (g *group) forgetMembership() {
	g.generation, g.protocolType, g.protocol, g.leader = 0, "", "", ""
	g.subscribed, g.readable = nil, false
	g.recorded, g.behind, g.deleting = false, false, false
}

// metadata is what the member offers with a protocol.
func (mem *member) metadata(protocol string) []byte {
	for i := range mem.protocols {
		if mem.protocols[i].Name == protocol {
			return mem.protocols[i].Metadata
		}
	}
	return nil
}

// matches reports whether the member offers just this.
func (mem *member) matches(protocols []model.GroupProtocol) bool {
	return slices.EqualFunc(mem.protocols, protocols, func(a, b model.GroupProtocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}
