// Package nds has the messages by which a proxy's DNS server learns the names of the mesh: as one
// table (Istio's NDS), or host by host.
package nds

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.57.2 generate

// The types of the messages, and the name of the one resource of TableType. The resources of
// HostType are named after it: names/HOST.
const (
	TableType = "type.googleapis.com/istio.networking.nds.v1.NameTable"
	HostType  = "type.googleapis.com/portolan.nds.v1.Host"
	TableName = "names"
)
