package main

import (
	"cmp"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/envoy"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
)

// followProxyConfig takes what the mesh says of the machine's proxy. It implements relay.Follower.
func (a *agent) followProxyConfig(set []*discoveryv3.Resource, removed []string) {
	before := a.proxyConfig.Load()
	if len(removed) > 0 {
		a.proxyConfig.Store(nil)
	}
	for _, one := range set { // there is one at most
		body := &meshv1alpha1.ProxyConfig{}
		if err := one.GetResource().UnmarshalTo(body); err != nil {
			a.logger.Warn("what the server says of the proxy cannot be read", "err", err)
			return
		}
		a.proxyConfig.Store(body)
	}
	if !proto.Equal(before, a.proxyConfig.Load()) {
		a.meshSays()
	}
}

// otherBootstrap says whether the bootstrap would differ from the one that is there.
func (a *agent) otherBootstrap() bool {
	text, _, err := a.bootstrap()
	return err == nil && !slices.Equal(text, a.written.Load().([]byte))
}

// howToRun says how the Envoy runs: by the machine's file, else by the mesh.
func (a *agent) howToRun() envoy.Settings {
	c, mesh := a.config.Envoy, a.proxyConfig.Load()
	return envoy.Settings{
		Args: append(slices.Clone(c.Args), bootstrap.Arguments(mesh, c.Args)...), Env: bootstrap.Environment(mesh),
		Drain:         orMesh(c.Drain.Duration, mesh.GetTerminationDrainDuration().AsDuration(), mesh.GetTerminationDrainDuration() != nil, config.DefaultDrain),
		ListenerDrain: orMesh(c.ListenerDrain.Duration, mesh.GetDrainDuration().AsDuration(), mesh.GetDrainDuration() != nil, config.DefaultListenerDrain),
	}
}

// orMesh returns what the file says, else what the mesh does, else the default.
func orMesh(file, mesh time.Duration, set bool, otherwise time.Duration) time.Duration {
	if file == 0 && set {
		return mesh
	}
	return cmp.Or(file, otherwise)
}
