// Package serve is the server of portolan serve: it wires the packages of each layer
// into one process, and runs them.
//
//	Run -> openStore -> newServer -> server.run
//
// server.go adds the parts in the order of the data flow: the ConfigStore on etcd, the cache,
// the registries and xDS, the progress of proxies, the config API. An addition to the server
// is one line of wiring: a registry in addRegistries, a resource type in
// xds/generate/catalogue, a job in addJobs.
//
// One server at a time, the leader, does the jobs (jobs.go). Each job has a file: prune.go,
// settle.go, remember.go, objectstatus.go. Tasks of every server have files, too: proxyport.go
// and balance.go for the port of the proxies, api.go and apilistener.go for the port of the
// config API, garbage.go, logs.go. storestatus.go, maintenance.go, quarantine.go, format.go and
// loglevels.go answer operators.
//
// The command reads flags and environment variables, and fills in Options.
package serve
