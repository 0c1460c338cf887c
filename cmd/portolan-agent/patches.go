package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/renameio/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/envoy"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
)

// patches are what EnvoyFilters say of the bootstrap, and what becomes of that.
type patches struct {
	checking sync.Mutex // held while an Envoy looks at a bootstrap

	mu sync.Mutex // guards the fields below
	// said is what the servers say; nil for nothing.
	said *structpb.Struct
	// refused is why the Envoy does not take said; empty if it does, or is yet to be asked.
	refused string
}

// PatchStatus says what becomes of what EnvoyFilters say of the bootstrap.
type PatchStatus struct {
	// InForce are the fields of the bootstrap that are patched.
	InForce []string `json:"inForce,omitempty"`
	// LeftOut is what the agent's file leaves out.
	LeftOut []string `json:"leftOut,omitempty"`
	// Refused is why nothing is in force.
	Refused string `json:"refused,omitempty"`
}

// patching returns what is merged into the bootstrap, nil for nothing, and what becomes of the patches,
// nil if there are none. An agent that runs no Envoy could not see whether one takes them, and has none.
func (a *agent) patching() (*structpb.Struct, *PatchStatus) {
	a.patches.mu.Lock()
	defer a.patches.mu.Unlock()
	said := a.patches.said
	if len(said.GetFields()) == 0 || a.envoy == nil {
		return nil, nil
	}
	out := &PatchStatus{Refused: a.patches.refused}
	switch a.config.Envoy.Patches {
	case config.AllPatches:
	case config.NoPatches:
		out.LeftOut, said = slices.Sorted(maps.Keys(said.GetFields())), nil
	default:
		said, out.LeftOut = bootstrap.Guard(said)
	}
	if len(said.GetFields()) == 0 || out.Refused != "" {
		return nil, out
	}
	out.InForce = slices.Sorted(maps.Keys(said.GetFields()))
	return said, out
}

// followPatches takes what EnvoyFilters say of the bootstrap. It implements relay.Follower.
func (a *agent) followPatches(set []*discoveryv3.Resource, removed []string) {
	var now *structpb.Struct
	for _, one := range set { // there is one at most
		now = &structpb.Struct{}
		if err := one.GetResource().UnmarshalTo(now); err != nil {
			a.logger.Warn("what the server says of the bootstrap cannot be read", "err", err)
			return
		}
	}
	a.patches.mu.Lock()
	changed := (len(set) > 0 || len(removed) > 0) && !proto.Equal(now, a.patches.said)
	if changed {
		a.patches.said, a.patches.refused = now, ""
	}
	a.patches.mu.Unlock()
	if changed {
		a.meshSays()
	}
}

// refusePatches notes that the Envoy does not take what is in force.
func (a *agent) refusePatches(why error) {
	a.patches.mu.Lock()
	a.patches.refused = why.Error()
	a.patches.mu.Unlock()
	a.logger.Error("the proxy starts without what EnvoyFilters say of its bootstrap (applyTo BOOTSTRAP): mend or delete them, or restart-envoy tries them again", "err", why)
}

// checkPatches has an Envoy look at the patched bootstrap, before one runs by it. It takes the time in
// which an Envoy starts, and none without patches.
func (a *agent) checkPatches(ctx context.Context) {
	a.patches.checking.Lock()
	defer a.patches.checking.Unlock()
	if merged, _ := a.patching(); merged == nil {
		return
	}
	text, _, err := a.bootstrap()
	file := filepath.Join(a.config.State, "envoy-patched.json")
	if err == nil {
		err = renameio.WriteFile(file, text, 0o600)
	}
	if err == nil {
		err = envoy.Validate(ctx, a.config.Envoy.Path, file, a.howToRun())
	}
	if err != nil && ctx.Err() == nil {
		a.refusePatches(err)
	}
}

// envoyFailed takes that an Envoy has ended before it worked. If patches are in its bootstrap, the next
// starts without them.
func (a *agent) envoyFailed(why error) {
	if merged, _ := a.patching(); merged == nil {
		return
	}
	a.refusePatches(fmt.Errorf("an Envoy that started with them has ended: %w", why))
	if _, err := a.writeBootstraps(); err != nil {
		a.logger.Error("the bootstrap cannot be written", "err", err)
	}
}

// retryPatches has patches tried again that an Envoy did not take.
func (a *agent) retryPatches() {
	a.patches.mu.Lock()
	defer a.patches.mu.Unlock()
	a.patches.refused = ""
}

// lines say what becomes of the patches.
func (s *PatchStatus) lines() []string {
	var out []string
	if len(s.InForce) > 0 {
		out = append(out, "in force: "+strings.Join(s.InForce, ", "))
	}
	if s.Refused != "" {
		out = append(out, "not in force: "+strings.Join(strings.Fields(s.Refused), " "))
	}
	if len(s.LeftOut) > 0 {
		out = append(out, "left out: "+strings.Join(s.LeftOut, ", ")+" (envoy.patches of the agent's file)")
	}
	return out
}

// patchesFact says in one line what becomes of the patches, empty if there are none.
func (a *agent) patchesFact() string {
	if _, now := a.patching(); now != nil {
		return strings.Join(now.lines(), "; ")
	}
	return ""
}

// meshSays has the Envoy run by what the mesh says now, soon.
func (a *agent) meshSays() {
	select {
	case a.adopts <- struct{}{}:
	default: // it will be seen
	}
}

// adopt has the Envoy run by what the mesh says now. It is replaced in place if that changes how it
// starts.
func (a *agent) adopt(ctx context.Context) {
	a.checkPatches(ctx)
	now := a.howToRun()
	if !now.Restarts(a.envoy.Settings()) && !a.otherBootstrap() {
		a.envoy.Configure(now)
		return
	}
	a.logger.Info("the mesh says how the proxy runs: the Envoy is replaced in place")
	a.replaceEnvoy()
}
