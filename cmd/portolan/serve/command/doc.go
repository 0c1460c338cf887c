// Package command is the command serve: its flags, which become serve.Options, and how a new
// server joins the store of others. settings.go sets flags from a file.
//
//	New -> serveFlags.load -> serveFlags.validate -> serveFlags.options -> serve.Run
//
// A group of flags is a type with the methods register, validate and apply, in a file of its own.
package command
