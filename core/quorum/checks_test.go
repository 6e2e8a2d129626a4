package quorum

import (
	"hash/fnv"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// rests says whether what a message rests on is durable: a term, a vote, entries.
func (w *world) rests(s *site, message []byte) {
	in, err := decodeMessage(message)
	if err != nil {
		w.failf("node %d sends what cannot be read: %v", s.id, err)
	}
	m, hard := in.raft, s.disk.stored.Hard
	voted := func(candidate uint64) {
		// With a later term on disk it never votes in this one again.
		if hard.GetTerm() < m.GetTerm() || hard.GetTerm() == m.GetTerm() && hard.GetVote() != candidate {
			w.failf("node %d votes in term %d for %x, and has on disk term %d and vote %x", s.id, m.GetTerm(), candidate, hard.GetTerm(), hard.GetVote())
		}
		key := [2]uint64{m.GetFrom(), m.GetTerm()}
		if before, ok := w.votes[key]; ok && before != candidate {
			w.failf("node %d votes twice in term %d", s.id, m.GetTerm())
		}
		w.votes[key] = candidate
	}
	switch {
	case m.GetType() == raftpb.MsgVote:
		voted(m.GetFrom())
	case m.GetType() == raftpb.MsgVoteResp && !m.GetReject():
		voted(m.GetTo())
	case m.GetType() == raftpb.MsgAppResp && !m.GetReject() && m.GetIndex() > s.disk.last():
		w.failf("node %d acknowledges entry %d, and has on disk %d", s.id, m.GetIndex(), s.disk.last())
	case m.GetType() == raftpb.MsgSnap:
		w.tally["snapshots"]++
	}
	if m.GetType() != raftpb.MsgPreVote && m.GetType() != raftpb.MsgPreVoteResp && m.GetTerm() > hard.GetTerm() {
		w.failf("node %d speaks in term %d, and has on disk term %d", s.id, m.GetTerm(), hard.GetTerm())
	}
}

// look sees whether what a node has come to contradicts what was seen before.
func (w *world) look(s *site) {
	n := s.node
	if st := n.raft.BasicStatus(); st.RaftState == raft.StateLeader {
		if before, ok := w.leaders[st.GetTerm()]; ok && before != n.raftID {
			w.failf("term %d has two leaders, %x and %x", st.GetTerm(), before, n.raftID)
		} else if !ok {
			w.leaders[st.GetTerm()] = n.raftID
			w.tally["elections"]++
		}
	}
	if voters := n.conf.GetVoters(); !w.byHand && len(n.conf.GetVotersOutgoing()) == 0 && len(voters) == 2 {
		w.failf("node %d rests at two voters", s.id)
	}
	w.lookAtLog(s)
	if n.Leading() && !s.led {
		for topic := range w.done {
			if _, ok := n.Image().TopicByName(topic); !ok {
				w.failf("node %d leads without topic %s, whose creation was answered", s.id, topic)
			}
		}
	}
	s.led = n.Leading()
}

func (w *world) lookAtLog(s *site) {
	n := s.node
	if n.applied == s.checked {
		return
	}
	if n.applied < s.checked {
		w.failf("node %d went back from %d to %d", s.id, s.checked, n.applied)
	}
	first, err := n.store.mem.FirstIndex()
	if err != nil {
		w.failf("%v", err)
	}
	if first = max(first, s.checked+1); first <= n.applied {
		entries, err := n.store.mem.Entries(first, n.applied+1, 1<<40)
		if err != nil {
			w.failf("%v", err)
		}
		for _, e := range entries {
			got := [2]uint64{e.GetTerm(), hash(e.GetData())}
			if before, ok := w.entries[e.GetIndex()]; ok && before != got {
				w.failf("node %d has another committed entry %d", s.id, e.GetIndex())
			}
			w.entries[e.GetIndex()] = got
		}
	}
	s.checked = n.applied
	got := hash(encoded(n.Image()))
	if before, ok := w.images[n.applied]; ok && before != got {
		w.failf("node %d has another image at %d", s.id, n.applied)
	}
	w.images[n.applied] = got
}

func hash(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}
