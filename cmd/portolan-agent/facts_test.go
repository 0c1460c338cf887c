package main

import (
	"context"
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/node"
)

// TestFactsAreToldWhenTheyChange: each change once, and again if it was not told to the end.
func TestFactsAreToldWhenTheyChange(t *testing.T) {
	t.Parallel()
	var heard []string
	hear := func(_ context.Context, f node.Facts) { heard = append(heard, f.Drained) }
	var told factsTold
	say := func(ctx context.Context, drained string) {
		told.tell(ctx, func() node.Facts { return node.Facts{Agent: "1", Drained: drained} }, hear)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	say(t.Context(), "drained: a disk")
	say(t.Context(), "drained: a disk")
	say(gone, "")
	say(t.Context(), "")
	say(t.Context(), "")
	if want := []string{"drained: a disk", "", ""}; !slices.Equal(heard, want) {
		t.Errorf("told are %q, want %q", heard, want)
	}
}
