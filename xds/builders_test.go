package xds

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/desired"
)

// TestBuildersGoFirst: one of each class, and then all the others, nobody twice.
func TestBuildersGoFirst(t *testing.T) {
	t.Parallel()
	a, b := &desired.Group{}, &desired.Group{}
	var connections []*Connection
	for _, class := range []*desired.Group{a, a, nil, a, b, nil, b} {
		c := &Connection{}
		c.group.Store(class)
		connections = append(connections, c)
	}
	all := slices.Clone(connections)
	buildersFirst(connections)
	var classes []*desired.Group
	for _, c := range connections {
		classes = append(classes, c.group.Load())
	}
	if !slices.Equal(classes[:3], []*desired.Group{a, nil, b}) {
		t.Errorf("the first are of %v, want one of each of %v", classes[:3], []*desired.Group{a, nil, b})
	}
	for _, c := range all {
		if !slices.Contains(connections, c) {
			t.Error("a connection is lost")
		}
	}
}
