// Command portolan is the control plane and its command line in one binary.
//
// Each command has its own file, and commands.go lists them. root.go has what surrounds every
// command: its environment, errors and exit codes. All commands but serve are clients of the
// config API, or need no server at all.
//
//	main -> run -> newRootCommand -> a command -> environment.call
//	serve -> serveFlags.validate -> serveFlags.options -> serve.Run
//
// The server itself is package serve. The files serve_*.go have the flags of the command
// serve, one file for each group. They and root.go are the only ones that read environment
// variables.
package main
