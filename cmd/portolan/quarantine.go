package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/portolan-mesh/portolan/cache/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// discardWait is how long the answer to a deletion waits for the cache of this
// server to show it.
const discardWait = time.Second

// quarantine is what the cache of a server cannot serve.
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
		_, _ = q.server.mirror.Await(wait, at) // it is done, shown or not
	}
	return deleted, nil
}

// formatter tells whether the binary of a server and its store fit together.
type formatter struct{ server *server }

// StoreFormat implements maintenance.Formatter.
func (f formatter) StoreFormat(ctx context.Context) (maintenance.Format, error) {
	found, err := f.server.configs.Survey(ctx)
	if err != nil {
		return maintenance.Format{}, err
	}
	out := maintenance.Format{
		Server: maintenance.ServerFormat{Version: version, StorageFormat: etcd.StorageFormat, MinReader: etcd.MinReader},
		Store: maintenance.StoreFormat{
			StorageFormat: found.Format.StorageFormat, MinReader: found.Format.MinReader,
			Objects: found.Objects, UnknownFields: found.UnknownFields,
			UnknownKinds: found.UnknownKinds, Unreadable: found.Undecodable + found.Malformed,
		},
	}
	add := func(format string, args ...any) { out.Problems = append(out.Problems, fmt.Sprintf(format, args...)) }
	for _, err := range []error{found.Format.Readable(), found.Format.Writable()} {
		if err != nil {
			add("%v", err)
		}
	}
	if n := found.UnknownKinds; n > 0 {
		add("%d keys are of kinds that this server does not know, such as those of a newer one: they are kept and not served: "+
			"upgrade this server, or see portolan store quarantine list", n)
	}
	if n := found.UnknownFields; n > 0 {
		add("%d objects have fields that this server does not know, such as those of a newer one: they are kept and have no effect: upgrade this server", n)
	}
	if n := out.Store.Unreadable; n > 0 {
		add("%d keys cannot be read: see portolan store quarantine list", n)
	}
	return out, nil
}
