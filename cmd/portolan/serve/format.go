package serve

import (
	"context"
	"fmt"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// formatter checks whether the binary of a server fits its store.
type formatter struct{ server *server }

// StoreFormat implements maintenance.Formatter.
func (f formatter) StoreFormat(ctx context.Context) (maintenance.Format, error) {
	found, err := f.server.configs.Survey(ctx)
	if err != nil {
		return maintenance.Format{}, err
	}
	out := maintenance.Format{
		Server: maintenance.ServerFormat{Version: f.server.o.Version, StorageFormat: etcd.StorageFormat, MinReader: etcd.MinReader},
		Store: maintenance.StoreFormat{
			StorageFormat: found.Format.StorageFormat, MinReader: found.Format.MinReader,
			Objects: found.Objects, UnknownFields: found.UnknownFields,
			UnknownKinds: found.UnknownKinds, Unreadable: found.Undecodable + found.Malformed,
		},
	}
	add := func(format string, args ...any) { out.Problems = append(out.Problems, fmt.Sprintf(format, args...)) }
	for _, err := range []error{found.Format.Readable(), found.Format.Writable()} {
		if err != nil {
			add("%v", err)
		}
	}
	if n := found.UnknownKinds; n > 0 {
		add("%d keys are of kinds that this server does not know, such as kinds of a newer server: they are kept and not served: "+
			"upgrade this server, or see portolan store quarantine list", n)
	}
	if n := found.UnknownFields; n > 0 {
		add("%d objects have fields that this server does not know, such as fields of a newer server: they are kept and have no effect: upgrade this server", n)
	}
	if n := out.Store.Unreadable; n > 0 {
		add("%d keys cannot be read: see portolan store quarantine list", n)
	}
	return out, nil
}
