// Command portolan is the control plane and its command line in one binary.
//
// commands.go puts the groups of commands together: objects, proxies, store, access, and serve
// from package serve/command. All commands but serve are clients of the config API, or need no
// server at all. Package cli is what they share:
//
//	main -> cli.Run -> cli.NewRootCommand -> a command -> Environment.Call
//
// The server itself is package serve. Only serve/command and cli read environment variables.
// Package exit has the exit codes, and package help the form of help texts.
package main
