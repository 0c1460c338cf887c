// Package statuses mirrors what servers report on objects, on themselves and on
// proxies (side/status in etcd). It lays the statuses of objects over the snapshots
// of the configuration, from which the config API answers. Generators never see
// them.
//
// Configuration and statuses come by two watches. Cache.Run merges them by revision
// (merge.go): it publishes a snapshot when both watches are complete up to its
// revision, so a client that resumes from there misses nothing. It requests progress
// at once of the watch that is behind.
//
//	c := statuses.New(client, statuses.Options{Base: mirror, Schemas: schema.Pilot()})
//	go c.Run(ctx)
//	server, err := rest.New(rest.Options{Cache: c, ...})
package statuses
