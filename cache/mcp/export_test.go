package mcp

import (
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Stamp sets the metadata that the cache sets on an object.
func Stamp(object *config.Config, version string) error {
	object.ResourceVersion = ""
	return stamp(object, version)
}

// Decode decodes a resource, and returns its object or its fault.
func Decode(kind *schema.Schema, name string, resource *anypb.Any, now time.Time) (object *config.Config, fault string) {
	d := &decoder{now: func() time.Time { return now }}
	r := d.decode(kind, name, "", resource)
	return r.object, r.fault
}

// SetMaxRequest bounds the versions of one kind in a request, before the cache runs.
func (c *Cache) SetMaxRequest(bytes int) { c.maxRequest = bytes }
