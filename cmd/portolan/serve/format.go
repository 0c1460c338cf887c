package serve

import (
	"context"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/cache/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// formatter tells whether the binary of a server and its store fit together.
type formatter struct{ server *server }

// StoreFormat implements maintenance.Formatter.
func (f formatter) StoreFormat(ctx context.Context) (maintenance.Format, error) {
	found, err := f.server.configs.Survey(ctx)
	if err != nil {
		return maintenance.Format{}, err
	}
	out := maintenance.Format{
		Server: maintenance.ServerFormat{Version: f.server.o.Version, StorageFormat: etcd.StorageFormat, MinReader: etcd.MinReader, Kinds: f.kinds()},
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
	out.Notes = f.notes()
	return out, nil
}

// kinds are the names of the kinds that the server knows.
func (f formatter) kinds() (names []string) {
	for _, kind := range f.server.configs.Schemas().All() {
		names = append(names, kind.Plural)
	}
	slices.Sort(names)
	return names
}

// notes say who is let in.
func (f formatter) notes() (notes []string) {
	switch users, known := f.server.keeper.Users(); {
	case !known:
	case users == 0:
		notes = append(notes, "there is no user yet: everybody on the machine of the server may do everything over the config API. "+
			"The first user ends that, on all servers of the store: portolan user create NAME --role admin")
	case f.server.o.AnonymousLoopback:
		notes = append(notes, "there are users, and everybody on the machine of the server may do everything over the config API all the same (--anonymous-loopback)")
	default:
		notes = append(notes, fmt.Sprintf("there are users (%d): the config API lets nobody in without a credential, scripts on the machine of the server neither; its owner comes in over the socket", users))
	}
	if f.server.o.TLS.SecureXDSAddress == "" {
		notes = append(notes, "proxies of other machines cannot connect but through a tunnel: --secure-xds-address serves them over TLS")
	}
	if f.server.security.exposed {
		notes = append(notes, "xDS is served without TLS to other machines (--insecure-xds-anywhere): whoever reaches it reads the configuration of every proxy")
	}
	return notes
}
