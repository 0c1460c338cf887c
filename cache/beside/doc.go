// Package beside records what this server has of the sources beside the store, and in what
// the other servers of the store differ from it.
//
// Sources follow what is published. Their Report goes to the other servers
// (side/status/source/<id> and side/status/content/<id>/<source>/<part>, which the reporter
// of package progress writes), and Compare holds it against theirs.
package beside
