// Package rows merges the rows of all registries: for each host and namespace one row of
// services and one of endpoints. Pushes are derived only from these rows and from
// configuration.
//
//	registry -> Table.SetServices, Table.SetEndpoints -> Service, Endpoints
//
// A Table is a value. A copy is a fork: a change in one does not show in the other.
package rows
