package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	kubeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// following is a kind that is being followed.
type following struct {
	resource kubeschema.GroupVersionResource
	stop     func() // waits until it has ended
}

// discover follows the kinds that the cluster serves, until ctx ends.
func (c *Cache) discover(ctx context.Context) error {
	var groups []string
	for _, kind := range c.kinds {
		if !slices.Contains(groups, kind.Group) {
			groups = append(groups, kind.Group)
		}
	}
	now := map[config.GroupVersionKind]*following{}
	defer func() {
		for _, f := range now {
			f.stop()
		}
	}()
	wait := retry.New(c.o.Discover/20, c.o.Discover)
	for {
		served, err := c.o.Cluster.Served(ctx, groups)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = c.followServed(ctx, served, now)
		}
		c.setFault(err)
		pause := c.o.Discover
		if err == nil {
			wait.Reset()
		} else {
			pause = wait.Next()
		}
		if retry.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// followServed starts and ends following, so that each kind is followed in the newest
// version that the cluster serves. The error names kinds that have objects, which the cluster does
// not list although it has the kinds.
func (c *Cache) followServed(ctx context.Context, served []kubeschema.GroupVersionResource, now map[config.GroupVersionKind]*following) error {
	var lacks, unlisted []string
	for _, kind := range c.kinds {
		was, want := now[kind.GroupVersionKind], newest(kind, served)
		switch {
		case was == nil && want.Version == "" && c.has(kind) && !c.isAbsent(ctx, kind): // as at its start
			unlisted = append(unlisted, kind.Kind)
		case was == nil && want.Version == "":
			lacks = append(lacks, kind.Kind)
			c.absent(kind, false)
		case was != nil && want == was.resource:
		case was != nil && !newer(kind, want, was.resource) && !c.o.Cluster.Absent(ctx, was.resource): // it lists less than it has
		default:
			if was != nil {
				was.stop()
				delete(now, kind.GroupVersionKind)
			}
			c.setResource(kind, want)
			if want.Version == "" {
				lacks = append(lacks, kind.Kind)
				c.absent(kind, true)
				continue
			}
			now[kind.GroupVersionKind] = c.follow(ctx, kind, want)
		}
	}
	if !slices.Equal(lacks, c.lacks) && len(lacks) > 0 {
		c.o.Log.Warn("a cluster does not have some kinds, and so no objects of them: they are followed once it has", "cluster", c.o.Cluster.Name(), "kinds", lacks)
	}
	c.lacks = lacks
	if len(unlisted) > 0 {
		return fmt.Errorf("the API server does not list all kinds yet that it has: the last known objects of %s are served", strings.Join(unlisted, ", "))
	}
	return nil
}

// newest returns the resource of a kind in the newest version that is served, the zero
// value if there is none.
func newest(kind *schema.Schema, served []kubeschema.GroupVersionResource) kubeschema.GroupVersionResource {
	for _, version := range kind.Versions {
		r := kubeschema.GroupVersionResource{Group: kind.Group, Version: version, Resource: kind.Plural}
		if slices.Contains(served, r) {
			return r
		}
	}
	return kubeschema.GroupVersionResource{}
}

// newer says whether a resource is of a newer version of a kind than another. The zero value is
// the oldest.
func newer(kind *schema.Schema, a, b kubeschema.GroupVersionResource) bool {
	return a.Version != "" && slices.Index(kind.Versions, a.Version) < slices.Index(kind.Versions, b.Version)
}

// has says whether there are objects of a kind, such as those that the cluster last had.
func (c *Cache) has(kind *schema.Schema) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range []pmap.Map[*config.Config]{c.configs, c.aside} {
		for range all.Prefix(config.KindPath(kind.GroupVersionKind)) {
			return true
		}
	}
	return false
}

// hasObject says whether there is an object, in a namespace that counts or in another.
func (c *Cache) hasObject(kind *schema.Schema, name types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known(pathOf(kind, name)) != nil
}

// isAbsent says whether the cluster has a kind in no version.
func (c *Cache) isAbsent(ctx context.Context, kind *schema.Schema) bool {
	return !slices.ContainsFunc(kind.Versions, func(version string) bool {
		return !c.o.Cluster.Absent(ctx, kubeschema.GroupVersionResource{Group: kind.Group, Version: version, Resource: kind.Plural})
	})
}

// absent takes that a cluster does not have a kind. had says that it was followed before.
func (c *Cache) absent(kind *schema.Schema, had bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dropped := c.drop(kind, nil); had || dropped {
		c.gone[kind.GroupVersionKind] = cache.Problem{
			Where:   "cluster " + c.o.Cluster.Name(),
			Message: fmt.Sprintf("the cluster no longer has the kind %s (%s.%s): its objects are gone with its definition", kind.Kind, kind.Plural, kind.Group),
			Since:   time.Now(), Warning: true,
		}
	}
	delete(c.pending, kind.GroupVersionKind)
	c.publishWhole()
}

// follow follows a kind in one version.
func (c *Cache) follow(ctx context.Context, kind *schema.Schema, resource kubeschema.GroupVersionResource) *following {
	c.mu.Lock()
	delete(c.gone, kind.GroupVersionKind)
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	begun := false
	decode := decoder{kind, c.o.Schemas, c.o.Domain, c.o.AcceptUnserved}
	var running sync.WaitGroup
	running.Go(func() {
		_ = cluster.Follow(ctx, c.o.Cluster, cluster.Following[*config.Config]{ // it fails only by a wrong selector
			Resource: resource, Kind: kind.Kind, Convert: decode.decode,
			Handle: func(b cluster.Batch[*config.Config]) {
				c.handle(kind, b, !begun)
				begun = true
			},
			Has:   func(name types.NamespacedName) bool { return c.hasObject(kind, name) },
			State: func(err error) { c.setState(kind, err) },
		})
	})
	return &following{resource, func() {
		cancel()
		running.Wait()
	}}
}
