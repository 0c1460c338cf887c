// Package cli is what all commands of the program share. A [Program] has the groups of commands;
// [Run] runs a command line of it. The [Environment] has the inputs and outputs of a command,
// calls the server for it, and prints tables and documents.
package cli
