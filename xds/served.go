package xds

import (
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/export"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// servedTypes are the types that one sort of client can request, in the order of sending.
// Proxies have one list, control planes that take objects another.
type servedTypes []servedType

type servedType struct {
	// ResourceType has only a Name, and is Full, if the resources are the objects of a
	// kind.
	generate.ResourceType
	url     string
	needing []string // the types whose resources need this one
}

func typesOfProxies(types []generate.ResourceType) servedTypes {
	var out servedTypes
	for _, t := range types {
		url := t.Generator.TypeURL()
		out = append(out, servedType{t, url, generate.Needing(types, url)})
	}
	return out
}

// typesOfObjects are the served types of control planes that take objects.
func typesOfObjects(e *export.Export) servedTypes {
	if e == nil {
		return nil
	}
	var out servedTypes
	for _, t := range e.Types() {
		out = append(out, servedType{ResourceType: generate.ResourceType{Name: t.Name, Full: true}, url: t.URL})
	}
	return out
}

// named returns false for a type that is not served.
func (all servedTypes) named(typeURL string) (*servedType, bool) {
	for i := range all {
		if all[i].url == typeURL {
			return &all[i], true
		}
	}
	return nil, false
}

// nameOf returns the short name of a type, and "other" for a type that is not served.
func (all servedTypes) nameOf(typeURL string) string {
	if t, served := all.named(typeURL); served {
		return t.Name
	}
	return "other"
}

// desiredResources are the resources that one client should have, and the objects behind
// them. They are a desired.Member for a proxy, an export.Member for a control plane.
type desiredResources interface {
	Advance(newest func() *mesh.PushContext)
	Context() *mesh.PushContext
	Resources(typeURL string) resource.Set
	Origins(typ int, name string) []config.Key
	// Patches returns what became of the patches of EnvoyFilters on a resource.
	Patches(typeURL, name string) []mesh.PatchNote
	Close()
}

// join sets the types that the client can request, and makes the resources that it should
// have.
func (c *Connection) join(proxy *discovery.Proxy) {
	s := c.server
	if proxy.Type == discovery.ConfigClient {
		c.served, c.desired = s.objectTypes, s.options.Export.Join()
		return
	}
	c.member = s.desired.Join(proxy)
	c.served, c.desired = s.proxyTypes, c.member
}
