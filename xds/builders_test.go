package xds

import (
	"slices"
	"testing"
)

// TestBuildersGoFirst: one of each class, and then all the others, nobody twice.
func TestBuildersGoFirst(t *testing.T) {
	t.Parallel()
	a, b := &world{}, &world{}
	var connections []*Connection
	for _, class := range []*world{a, a, nil, a, b, nil, b} {
		c := &Connection{}
		c.class.Store(class)
		connections = append(connections, c)
	}
	all := slices.Clone(connections)
	buildersFirst(connections)
	var classes []*world
	for _, c := range connections {
		classes = append(classes, c.class.Load())
	}
	if !slices.Equal(classes[:3], []*world{a, nil, b}) {
		t.Errorf("the first are of %v, want one of each of %v", classes[:3], []*world{a, nil, b})
	}
	for _, c := range all {
		if !slices.Contains(connections, c) {
			t.Error("a connection is lost")
		}
	}
}
