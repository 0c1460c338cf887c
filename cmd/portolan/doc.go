// Command portolan is the control plane and its command line in one binary.
//
// Each command has a file of its own, and commands.go lists them; root.go has what
// is around each: its environment, errors and exit codes. All but serve are clients
// of the config API, or need no server at all.
//
//	main -> run -> newRootCommand -> a command -> environment.call
//	serve -> openStore -> newServer -> server.run
//
// serve.go, and a file for each group of flags, say what a server is to be;
// store_embedded.go and store_external.go open its store; server.go wires store,
// cache, registries and xDS, and runs them; lifecycle.go is the port of the proxies,
// jobs.go what one server of all does.
package main
