// Package kubeapi prepares Kubernetes' own API server, which `make kube-apiserver` builds, for the
// integration tests and the load tool. Prepare writes its files and says how to start it; who
// starts the process ends it. An API then takes requests.
//
//	server, err := kubeapi.Prepare(kubeapi.Options{Dir: dir, Etcd: "http://127.0.0.1:2379", Port: 6443})
//	start(path, server.Args)
//	err = server.Install(ctx)
package kubeapi
