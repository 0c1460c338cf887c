package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Run runs a server until ctx ends, then returns nil. When the server answers, it logs one
// line, "ready", with the addresses of its ports. An error says why the server could not start
// or had to stop.
func Run(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	o.recent = &recentLog{}
	o.Logger = slog.New(limitLogs(o.recent.keep(o.Logger.Handler())))
	// Open the ports first: if one is in use, nothing must have changed.
	api, err := listen("--api-address", o.APIAddress)
	if err != nil {
		return err
	}
	defer api.Close()
	proxies, err := o.listenForProxies("--xds-address", o.XDSAddress)
	if err != nil {
		return err
	}
	defer proxies.Close()
	xdsSocket, err := o.listenXDSSocket()
	if err != nil {
		return err
	}
	if xdsSocket != nil {
		defer xdsSocket.Close()
	}
	security, err := newSecurity(&o)
	if err != nil {
		return err
	}
	var secured net.Listener
	if o.TLS.SecureXDSAddress != "" {
		if secured, err = o.listenForProxies("--secure-xds-address", o.TLS.SecureXDSAddress); err != nil {
			return err
		}
		defer secured.Close()
	}

	store, err := openStore(ctx, &o)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(runOn(ctx, store, listeners{api, proxies, secured, xdsSocket, security}, o), store.close())
}

// listeners are the open ports, and their security.
type listeners struct {
	api, xds  net.Listener
	secureXDS net.Listener // nil for none
	xdsSocket net.Listener // nil for none
	security  *security
}

// runOn runs a server on an open store until ctx ends.
func runOn(ctx context.Context, store *openedStore, on listeners, o Options) (err error) {
	if o.Backup != nil {
		schedule := *o.Backup
		schedule.Schemas, schedule.Envelope = schema.Pilot(), func() (*escrow.Envelope, error) {
			keys, err := o.keys()
			if err != nil {
				return nil, err
			}
			return o.BackupEnvelope(keys)
		}
		if store.backups, err = backup.NewScheduler(store.client, schedule, o.log(loglevel.Store)); err != nil {
			return err
		}
	}
	private, err := o.listenPrivately()
	if err != nil {
		return err
	}
	if private != nil {
		defer private.Close()
	}
	s, err := newServer(store, newProxyPort(on, &o), on.security, o)
	if err != nil {
		return err
	}
	return s.run(ctx, on.api, private)
}

// listenPrivately opens the socket of the config API, and sets APISocket to its absolute path.
// The data directory belongs to this server by now. If the directory cannot have a socket and
// no option names one, the server runs without.
func (o *Options) listenPrivately() (net.Listener, error) {
	asked := o.APISocket != ""
	if !asked && o.Embedded == nil {
		return nil, nil
	}
	if !asked {
		o.APISocket = filepath.Join(o.Embedded.DataDir, member.APISocket)
	}
	path, err := filepath.Abs(o.APISocket)
	if err != nil {
		return nil, fmt.Errorf("--api-socket: %w", err)
	}
	l, err := socket.Listen(path)
	switch {
	case err == nil:
		o.APISocket = path
		return l, nil
	case asked:
		return nil, fmt.Errorf("--api-socket: %w", err)
	}
	o.Logger.Warn("there is no API socket, so nobody can take snapshots of the store or manage it: choose another place with --api-socket", "err", err)
	o.APISocket = ""
	return nil, nil
}

func listen(flag, address string) (net.Listener, error) {
	return listenBy(net.ListenConfig{}, flag, address)
}

func listenBy(by net.ListenConfig, flag, address string) (net.Listener, error) {
	l, err := by.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: another program has the port, or the address is not of this machine: choose another with %s", flag, err, flag)
	}
	return l, nil
}
