package loglevel

import (
	"log/slog"
	"sync"
	"time"
)

// Levels are the present levels of a server. All methods may be called at any time.
type Levels struct {
	vars map[Component]*slog.LevelVar // one for each component; the map never changes

	mu        sync.Mutex              // guards the fields below
	temporary map[Component]temporary // the components whose level ends by itself
	watchers  []func()
}

// temporary is the end of a level.
type temporary struct {
	until time.Time
	then  slog.Level
}

// A State is the level of one component.
type State struct {
	Component Component
	Level     slog.Level
	// Was is the level before the change that returned this state; else Level.
	Was slog.Level
	// Until is when Level gives way to Then; zero if it does not.
	Until time.Time
	Then  slog.Level
}

// New returns levels. A component of which the spec says nothing has the level info.
func New(s Spec) *Levels {
	l := &Levels{vars: map[Component]*slog.LevelVar{}, temporary: map[Component]temporary{}}
	for _, c := range Components() {
		l.vars[c] = &slog.LevelVar{}
		l.vars[c].Set(s[c]) // info is the zero level
	}
	return l
}

// Watch has f called after each change, the end of a temporary level among them.
func (l *Levels) Watch(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = append(l.watchers, f)
}

// Spec returns the present levels.
func (l *Levels) Spec() Spec {
	out := Spec{}
	for c, level := range l.vars {
		out[c] = level.Level()
	}
	return out
}

// States returns the levels in the order of the components.
func (l *Levels) States() []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []State
	for _, c := range Components() {
		out = append(out, l.state(c))
	}
	return out
}

// state requires mu.
func (l *Levels) state(c Component) State {
	level := l.vars[c].Level()
	s := State{Component: c, Level: level, Was: level}
	if t, ok := l.temporary[c]; ok {
		s.Until, s.Then = t.until, t.then
	}
	return s
}

// Set changes the levels that the spec names, and returns what has become of them. After limit they
// give way to the last levels that were set without one; a limit of 0 is none.
func (l *Levels) Set(s Spec, limit time.Duration) []State {
	l.mu.Lock()
	var out []State
	for _, c := range Components() {
		level, named := s[c]
		if !named {
			continue
		}
		was := l.vars[c].Level()
		end, limited := l.temporary[c]
		if !limited {
			end.then = was
		}
		delete(l.temporary, c)
		if limit > 0 {
			end.until = time.Now().Add(limit)
			l.temporary[c] = end
		}
		l.vars[c].Set(level)
		state := l.state(c)
		state.Was = was
		out = append(out, state)
	}
	l.mu.Unlock()
	if limit > 0 {
		time.AfterFunc(limit, l.expire)
	}
	l.tell()
	return out
}

// expire ends the temporary levels whose time has come.
func (l *Levels) expire() {
	l.mu.Lock()
	now, ended := time.Now(), false
	for c, t := range l.temporary {
		if !t.until.After(now) {
			l.vars[c].Set(t.then)
			delete(l.temporary, c)
			ended = true
		}
	}
	l.mu.Unlock()
	if ended {
		l.tell()
	}
}

func (l *Levels) tell() {
	l.mu.Lock()
	watchers := l.watchers
	l.mu.Unlock()
	for _, f := range watchers {
		f()
	}
}
