// Command portolan is the control plane and its command line in one binary.
//
// Each command has a file of its own, and commands.go lists them; root.go has what
// is around each: its environment, errors and exit codes. All but serve are clients
// of the config API, or need no server at all.
//
//	main -> run -> newRootCommand -> a command -> environment.call
//	serve -> serveFlags.validate -> serveFlags.options -> serve.Run
//
// The server itself is the package serve. The files serve_*.go are the flags of the
// command serve, a file for each group; with root.go they are the only ones that read
// environment variables.
package main
