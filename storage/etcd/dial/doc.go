// Package dial makes clients of etcd: over a unix socket, over TCP, with TLS and with a
// user. No other package sets their timeouts and retries.
//
// New does not connect: the first call does, and a client whose etcd went away
// reconnects. The client reads replaceable credentials when it needs them: the
// certificates at every connection (Options.TLS, Files.Config), the password whenever
// etcd authenticates it (Options.Password). So both can be replaced without a restart.
//
//	files := dial.Files{CA: "ca.pem", Cert: "portolan.pem", Key: "portolan-key.pem"}
//	client, err := dial.New(dial.Options{
//		Endpoints: []string{"https://10.0.0.5:2379"}, TLS: files.Config, Logger: logger,
//	})
package dial
