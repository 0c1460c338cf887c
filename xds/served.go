package xds

import (
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/export"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// servedTypes are the types that clients of one sort are served, in the order of sending.
// Proxies have one list, control planes that take objects another.
type servedTypes []servedType

type servedType struct {
	// ResourceType of the objects of a kind has its name alone, and is Full.
	generate.ResourceType
	url     string
	needing []string // the types whose resources need it
}

// typesOfProxies are the served types of proxies.
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

// named returns a type by its URL; false if it is not served.
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

// desiredResources is what one client should have, and what it was made of: a
// desired.Member for a proxy, an export.Member for a control plane.
type desiredResources interface {
	Advance(newest func() *mesh.PushContext)
	Context() *mesh.PushContext
	Resources(typeURL string) resource.Set
	Origins(typ int, name string) []config.Key
	Close()
}

// join makes what a client should have, of the types that it is served.
func (c *Connection) join(proxy *discovery.Proxy) {
	s := c.server
	if proxy.Type == discovery.ConfigClient {
		c.served, c.desired = s.objectTypes, s.options.Export.Join()
		return
	}
	c.member = s.desired.Join(proxy)
	c.served, c.desired = s.proxyTypes, c.member
}
