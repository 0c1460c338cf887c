package simulate_test

import (
	"math/rand/v2"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/policy/policytest"
	"github.com/portolan-mesh/portolan/xds/names"
)

// slots are the names of the slots of the filters of policytest.Group.Listener.
var slots = map[string]string{"AUDIT": names.HTTPAudit, "DENY": names.HTTPDeny, "ALLOW": names.HTTPAllow}

// eachSlot calls do with the filters of policies in a listener, and replaces each by what do returns.
func eachSlot(t *testing.T, l *listenerv3.Listener, do func(slot string, has *anypb.Any) *anypb.Any) {
	t.Helper()
	for _, chain := range l.GetFilterChains() {
		for _, f := range chain.GetFilters() {
			hcm := &hcmv3.HttpConnectionManager{}
			if err := f.GetTypedConfig().UnmarshalTo(hcm); err != nil {
				t.Fatal(err)
			}
			for _, h := range hcm.GetHttpFilters() {
				if slot, ok := slots[h.GetName()]; ok {
					h.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: do(slot, h.GetTypedConfig())}
				}
			}
			f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: message.Pack(hcm)}
		}
	}
}

// contentsOf returns the contents of the slots of a listener, as ECDS has them.
func contentsOf(t *testing.T, l *listenerv3.Listener) map[string]*anypb.Any {
	out := map[string]*anypb.Any{}
	eachSlot(t, l, func(slot string, has *anypb.Any) *anypb.Any {
		out[slot] = message.Pack(&corev3.TypedExtensionConfig{Name: slot, TypedConfig: has})
		return has
	})
	return out
}

// TestPoliciesChangeInTurns: while the slots of a proxy go from some policies to others, one after
// another in their turns, each request is answered as by the former policies or as by the new.
func TestPoliciesChangeInTurns(t *testing.T) {
	t.Parallel()
	const pairs, requests = 60, 10
	between, interims := 0, 0
	for seed := range uint64(pairs) {
		random := rand.New(rand.NewPCG(seed, 2))
		before, after := policytest.Draw(t, random, requests), policytest.Draw(t, random, requests)
		if before.TCP || after.TCP {
			continue
		}
		l := inbound(before)
		has, wants := contentsOf(t, l), contentsOf(t, inbound(after))
		for round := 0; ; round++ {
			if round > 5 {
				t.Fatalf("seed %d: the slots do not settle", seed)
			}
			now, goes := 0, map[string]*anypb.Any{}
			due := 0
			for _, slot := range slots {
				if proto.Equal(has[slot], wants[slot]) {
					continue
				}
				due++
				turn, interim := policy.Turn(has[slot], wants[slot])
				if len(goes) == 0 || turn < now {
					now, goes = turn, map[string]*anypb.Any{}
				}
				if turn == now {
					if goes[slot] = wants[slot]; interim != nil {
						goes[slot] = message.Pack(interim)
						interims++
					}
				}
			}
			if due == 1 { // it goes at once
				for slot := range goes {
					goes[slot] = wants[slot]
				}
			}
			if due == 0 {
				break
			}
			for slot, content := range goes { // in any order
				has[slot] = content
				eachSlot(t, l, func(slot string, _ *anypb.Any) *anypb.Any {
					of := &corev3.TypedExtensionConfig{}
					if err := has[slot].UnmarshalTo(of); err != nil {
						t.Fatal(err)
					}
					return of.GetTypedConfig()
				})
				p := simulated(t, l)
				for _, r := range before.Requests {
					was, will := before.Evaluate(r), after.Evaluate(r)
					if was != will {
						between++
						continue
					}
					r.Want, r.Status = will, 0
					if passes, by := run(t, p, before, r); passes != will {
						t.Fatalf("seed %d: after %s %+v: passes is %t by %q, before and after it is not\nfrom %s\nto %s", seed, slot, r, passes, by, before, after)
					}
				}
			}
		}
	}
	if between < 200 || interims < 3 {
		t.Errorf("%d answers may be either, and %d contents were for now: the draws say little", between, interims)
	}
}
