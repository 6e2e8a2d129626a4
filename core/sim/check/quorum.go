package check

// ballot is the vote of one member of the quorum in one term.
type ballot struct{ voter, term uint64 }

// Voted tells that a member of the quorum has told another that it votes for a candidate, or
// stands itself. Members are named as Raft names them.
func (c *Checker) Voted(voter, term, candidate uint64) {
	b := ballot{voter, term}
	if before, ok := c.ballots[b]; ok && before != candidate {
		c.violate("quorum: member %x votes in term %d for %x, after %x", voter, term, candidate, before)
	}
	c.ballots[b] = candidate
}

// LeadsQuorum tells that a member of the quorum has spoken to another as the leader of a term.
func (c *Checker) LeadsQuorum(member, term uint64) {
	if before, ok := c.terms[term]; ok && before != member {
		c.violate("quorum: members %x and %x lead in term %d", before, member, term)
	}
	c.terms[term] = member
}
