// Command portolan is the control plane and its command line in one binary.
//
// Each command has its own file, and commands.go lists them. root.go has what surrounds every
// command: its environment. All commands but serve are clients of the
// config API, or need no server at all.
//
//	main -> run -> newRootCommand -> a command -> environment.call
//
// The server itself is package serve, and its command package serve/command. That package and
// root.go are the only ones that read environment variables. Package exit has the exit codes,
// and package help the form of help texts.
package main
