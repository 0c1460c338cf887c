// Package external is the client of an etcd cluster that somebody else runs: it
// connects, and says whether the cluster can be used, and why not.
//
// Start checks it once, and returns an error for faults that waiting does not fix: an
// untrusted certificate, a wrong password, a user who may not read, an old version. A
// cluster that is merely away is no error. Run goes on checking, Ready says why the
// cluster cannot be used, and the log says when that begins and ends. While the cluster
// is silent, calls of its Client fail within about a second, with the reason. No restart
// is needed when the cluster is back, when its users or certificates have been replaced,
// or when its user has got another role.
//
//	cluster, err := external.New(external.Options{Dial: dial.Options{Endpoints: endpoints}, Logger: logger})
//	err = cluster.Start(ctx)
//	store, err := etcd.New(cluster.Client(), etcd.Options{Schemas: schema.Pilot()})
//	err = cluster.Run(ctx)
package external
