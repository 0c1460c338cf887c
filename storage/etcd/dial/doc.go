// Package dial makes clients of etcd: over a unix socket, over TCP, with TLS
// and with a user. It is the one place that says how patient they are.
//
// New does not connect: the first call does, and a client whose etcd went away
// connects again by itself. What can change while a client lives is asked for
// when it is needed: the certificates at every connection (Options.TLS,
// Files.Config), the password whenever etcd wants to know who it is
// (Options.Password). So both can be replaced without a restart.
//
//	files := dial.Files{CA: "ca.pem", Cert: "portolan.pem", Key: "portolan-key.pem"}
//	client, err := dial.New(dial.Options{
//		Endpoints: []string{"https://10.0.0.5:2379"}, TLS: files.Config, Logger: logger,
//	})
package dial
