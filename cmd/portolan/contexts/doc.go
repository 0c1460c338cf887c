// Package contexts keeps the servers that a user of the command line calls by name, and what
// each is told of the user. They are in one file, for its owner alone.
package contexts
