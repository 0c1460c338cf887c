// Package settings reads the flags of a command from a file, and writes such a file. A field is a
// flag, by its name:
//
//	api-address: 0.0.0.0:15080
//	api-name: [mesh.example.com]
//	backup-interval: 30m
//
// It has no list of fields: the flags are the list.
package settings
