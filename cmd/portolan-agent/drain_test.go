package main

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/envoy"
)

// TestStanding: drained goes before what the probe says, outlives the agent, and ends with what the
// probe said last.
func TestStanding(t *testing.T) {
	t.Parallel()
	var said []string
	tell := func(_ context.Context, healthy bool, why string) { said = append(said, fmt.Sprint(healthy, " ", why)) }
	file := filepath.Join(t.TempDir(), "drained")
	begin := func() *standing {
		s, err := newStanding(file, tell)
		if err != nil {
			t.Fatal(err)
		}
		s.begin(t.Context())
		return s
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	s := begin() // says nothing
	do(s.drain(ctx, "new disk"))
	s.report(ctx, true, "")
	s = begin()
	if why, ok := s.why(); !ok || why != "drained: new disk" {
		t.Errorf("it is %q, %t", why, ok)
	}
	do(s.resume(ctx))
	do(s.resume(ctx)) // says nothing
	s.report(ctx, false, "no answer")
	do(s.drain(ctx, ""))
	do(s.resume(ctx))
	s = begin() // says nothing
	if _, ok := s.why(); ok {
		t.Error("it is still drained")
	}
	want := []string{"false drained: new disk", "false drained: new disk", "false drained: new disk", "true ", "false no answer", "false drained", "false no answer"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Error(diff)
	}
}

// TestLeft: whoever waits in vain for a drain is told what is left.
func TestLeft(t *testing.T) {
	t.Parallel()
	for want, now := range map[string]*envoy.UnderWay{
		"some requests may be under way":                                                      nil,
		"1 request is under way, and 0 connections of HTTP are open":                          {Requests: 1},
		"2 requests are under way, and 1 connection of HTTP is open":                          {Requests: 2, Connections: 1},
		"no request is under way, and 1 connection of others is open, which may bring one":    {Connections: 1},
		"no request is under way, and 3 connections of others are open, which may bring some": {Connections: 3},
	} {
		if got := left(now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
