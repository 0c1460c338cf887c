// Package rows puts together what all registries hand over: for each host and
// namespace one row of services and one of endpoints, whichever registries they come
// from. Pushes are derived from these rows and from configuration alone.
//
//	registry -> Table.SetServices, Table.SetEndpoints -> Service, Endpoints
//
// A Table is a value. A copy is a fork of it: what is set in the one does not show in
// the other.
package rows
