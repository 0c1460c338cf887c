// Package beside records the objects that this server has from sources beside the store,
// and compares them with other servers of the same store.
//
// Sources follow the published snapshots. Their Report goes to the other servers
// (side/status/source/<id> and side/status/content/<id>/<source>/<part>, which the
// reporter of package progress writes), and Compare compares it with theirs.
package beside
