package stream

import "strings"

// A scoped type is of resources that live within another: the scope of each is
// its name up to the last slash. A client wants of a scope only while it is
// open, that is, while it has what they live in.

// ScopeOf is the scope of a name, empty for none.
func ScopeOf(name string) string { return name[:max(strings.LastIndexByte(name, '/'), 0)] }

// open says whether resources of a name may be sent.
func (s *Session) open(name string) bool {
	if !s.typ.Scoped {
		return true
	}
	_, ok := s.scopes[ScopeOf(name)]
	return ok
}

// Opened says whether a scope is open.
func (s *Session) Opened(scope string) bool {
	_, ok := s.scopes[scope]
	return ok
}

// Open has the resources of a scope sent, but those which the client has stated
// to have as they are. Where it is new to the client, whatever it stated is lost
// to it, and all are sent.
func (s *Session) Open(scope string, isNew bool) {
	if _, already := s.scopes[scope]; already && !isNew {
		return
	}
	s.scopes[scope] = struct{}{}
	for name, r := range s.offered.Prefix(scope + "/") {
		if ScopeOf(name) != scope || !s.started || !s.wants(name) {
			continue
		}
		version, stated := s.stated[name]
		delete(s.stated, name)
		switch {
		case isNew:
			s.due[name] = holding{}
			delete(s.leaving, name)
		case !stated || version != r.Version:
			s.make(name, holding{unknown: stated})
		}
	}
	for name := range s.stated { // of what is no more
		if ScopeOf(name) == scope {
			s.leaving[name] = holding{unknown: true}
			delete(s.stated, name)
		}
	}
}

// Close has the client give up all that it has of a scope.
func (s *Session) Close(scope string) {
	if _, opened := s.scopes[scope]; !opened {
		return
	}
	for name := range s.offered.Prefix(scope + "/") {
		if ScopeOf(name) == scope && s.started && s.wants(name) {
			s.giveUp(name)
			delete(s.refused, name)
		}
	}
	delete(s.scopes, scope)
}
