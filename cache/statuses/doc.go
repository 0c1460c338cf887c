// Package statuses mirrors the servers' reports on objects, on themselves and on proxies
// (side/status in etcd). It adds the statuses of objects to the snapshots of the
// configuration, from which the config API answers. Generators never see them.
//
// Configuration and statuses come by two watches. Cache.Run merges them by revision
// (merge.go): it publishes a snapshot when both watches are complete up to its revision,
// so a client that resumes from there misses nothing. If one watch is behind, it
// requests the progress of that one at once.
//
//	c := statuses.New(client, statuses.Options{Base: mirror, Schemas: schema.Pilot()})
//	go c.Run(ctx)
//	server, err := rest.New(rest.Options{Cache: c, ...})
package statuses
