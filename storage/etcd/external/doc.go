// Package external is the etcd cluster that somebody else runs: how to reach it,
// whether it can be used, and why not.
//
// Start asks it once and returns an error for what waiting does not mend: a
// certificate that is not trusted, a password that is wrong, a user who may not
// read, a version that is too old. A cluster that is merely away is no error: Run
// goes on asking, Ready says why it cannot be used, and the log when that begins
// and ends. While it does not answer, calls of its Client fail within about a
// second, with the reason, instead of waiting for it. Nothing has to be restarted
// when it is back, its users and certificates have been replaced, or its user has
// got another role.
//
//	cluster, err := external.New(external.Options{Dial: dial.Options{Endpoints: endpoints}, Logger: logger})
//	err = cluster.Start(ctx)
//	store, err := etcd.New(cluster.Client(), etcd.Options{Schemas: schema.Pilot()})
//	err = cluster.Run(ctx)
package external
