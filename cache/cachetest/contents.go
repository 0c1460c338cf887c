package cachetest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Contents records the ServiceEntries of a store at each version. It tells which version
// a cache shows if its source has no versions, such as files. The zero value is empty.
type Contents struct {
	mu      sync.Mutex // guards digests
	digests map[string]string
}

// Note records the objects of the store at a version, as the cache shows them.
func (c *Contents) Note(version string, objects []*config.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.digests == nil {
		c.digests = map[string]string{}
	}
	c.digests[version] = contentOf(objects)
}

// Shown waits until a cache shows a version or a later one, and returns that snapshot.
func (c *Contents) Shown(ctx context.Context, in Cache, version string) (*cache.Snapshot, error) {
	from, err := strconv.Atoi(version)
	if err != nil {
		return nil, err
	}
	for {
		snapshot := in.Snapshot()
		objects, err := in.List(ctx, schema.ServiceEntry, "")
		if err == nil && snapshot != nil && in.Snapshot() == snapshot && c.has(contentOf(objects), from) {
			return snapshot, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// has says whether the store had this content at a version or later.
func (c *Contents) has(content string, from int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for version, digest := range c.digests {
		if n, _ := strconv.Atoi(version); n >= from && digest == content {
			return true
		}
	}
	return false
}

func contentOf(objects []*config.Config) string {
	var b strings.Builder
	for _, object := range objects {
		fmt.Fprintln(&b, object.Key(), object.ResourceVersion)
	}
	return b.String()
}
