package stream

// rest has the client said to have what is offered where the two differ in nothing
// that it is to be told, so that the next look finds no difference.
func (s *Session) rest() {
	if !s.started || s.inflight != nil || s.has == s.offered || s.Pending() {
		return
	}
	var held []change
	for c := range s.differences(s.has) {
		held = append(held, c)
	}
	if s.absorb(held) {
		s.has = s.offered
	}
}

// absorb says whether what the client is not told is only of scopes that were
// never open, of which it has stated nothing. Then what it has of them may be said
// to be what is offered, as of names that it does not ask for: so that what no
// listener leads to is not looked at with every change.
func (s *Session) absorb(held []change) bool {
	for _, c := range held {
		scope := ScopeOf(c.Key)
		if s.scope(c.Key) != unseen || !s.absorbed[scope] && s.states(scope) {
			return false
		}
	}
	for _, c := range held {
		if s.absorbed == nil {
			s.absorbed = map[string]bool{}
		}
		s.absorbed[ScopeOf(c.Key)] = true
	}
	return true
}

// states says whether the client has something of a scope, as far as it said.
func (s *Session) states(scope string) bool {
	for range namesWithin(s.has, scope) {
		return true
	}
	return false
}

// release says whether a scope was absorbed, which it is no longer: the client
// has nothing of it.
func (s *Session) release(scope string) bool {
	was := s.absorbed[scope]
	delete(s.absorbed, scope)
	return was
}
