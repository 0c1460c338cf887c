// Package side mirrors what servers say of objects, of one another and of
// proxies (side/status in etcd), and lays the statuses of objects over the
// snapshots of the configuration: what clients of the config API are answered
// from. What is generated never sees them.
//
// Configuration and statuses come by two watches. Cache.Run merges them by
// revision (merge.go): a snapshot is published when it is known of both that
// nothing older will come, so that a client who resumes from its revision misses
// nothing. Whichever watch is behind is asked for its progress at once.
//
//	c := side.New(client, side.Options{Base: mirror, Schemas: schema.Pilot()})
//	go c.Run(ctx)
//	server, err := rest.New(rest.Options{Cache: c, ...})
package side
