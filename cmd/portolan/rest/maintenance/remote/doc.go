// Package remote calls the maintenance of a server: its store, its sealing keys, its certificate
// authority.
package remote

import "github.com/portolan-mesh/portolan/cmd/portolan/rest/client"

// Server is a server that a client calls.
type Server struct{ *client.Client }
