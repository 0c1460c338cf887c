package remote

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
)

// Quarantine returns the keys in the store that cannot be served.
func (c Server) Quarantine(ctx context.Context) (*maintenance.QuarantineList, error) {
	out := &maintenance.QuarantineList{}
	if err := c.JSON(ctx, maintenance.QuarantinePath, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Discard removes a key from quarantine, written as in the list of it, if it has the
// revision.
func (c Server) Discard(ctx context.Context, key string, revision int64) (*maintenance.Discarded, error) {
	out := &maintenance.Discarded{}
	query := url.Values{"key": {key}, "revision": {strconv.FormatInt(revision, 10)}}
	if _, err := c.Do(ctx, call.Request{Method: http.MethodDelete, Path: maintenance.QuarantinePath, Query: query}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// StoreFormat returns whether the server and its store are compatible. The server reads
// the whole store for that.
func (c Server) StoreFormat(ctx context.Context) (*maintenance.Format, error) {
	out := &maintenance.Format{}
	if err := c.JSON(ctx, maintenance.FormatPath, out); err != nil {
		return nil, err
	}
	return out, nil
}
