package serve

import (
	"context"
	"strconv"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
)

// discardWait is how long the answer to a deletion waits until the cache of this server has
// it.
const discardWait = time.Second

// quarantine lists and removes objects that a server's cache cannot serve.
type quarantine struct{ server *server }

// Quarantined implements maintenance.Quarantine.
func (q quarantine) Quarantined() (items []maintenance.Quarantined) {
	for one := range q.server.mirror.Quarantine().All() {
		items = append(items, maintenance.Quarantined{
			Key: maintenance.EscapeKey(one.Key), Revision: one.Revision, Bytes: one.Size,
			Reason: one.Fault.Reason(), Since: one.Since.UTC().Truncate(time.Second), Serving: one.Serving,
		})
	}
	return items
}

// Discard implements maintenance.Quarantine.
func (q quarantine) Discard(ctx context.Context, key string, revision int64) (string, error) {
	deleted, err := q.server.configs.Discard(ctx, key, revision)
	if err != nil {
		return "", err
	}
	if at, err := strconv.ParseInt(deleted, 10, 64); err == nil {
		wait, cancel := context.WithTimeout(ctx, discardWait)
		defer cancel()
		_, _ = q.server.mirror.Await(wait, at) // the deletion is done, even if the cache does not show it yet
	}
	return deleted, nil
}
