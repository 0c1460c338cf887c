// Package contexts keeps, by name, the servers that a user of the command line calls, and the
// user's credentials for each. They are in one file that only its owner can read.
package contexts
