package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// A Cluster makes a member one of several, which reach each other over TCP.
type Cluster struct {
	// Name is the name of this member in its cluster.
	Name string `json:"name"`
	// PeerURL is where other members reach this one, and ClientURL where the other
	// servers do: https://HOST:PORT of this machine, or http without TLS and on loopback
	// only. The member listens on both, and announces them to the others.
	PeerURL   string `json:"peerURL"`
	ClientURL string `json:"clientURL"`
	// Initial are the members of a new cluster, this one among them. Join are client URLs
	// of members of the cluster that this member was added to. Both count only while the
	// data directory is empty. With neither the member is a new cluster of its own, to
	// which others can be added.
	Initial []Peer   `json:"initial,omitempty"`
	Join    []string `json:"join,omitempty"`
	// TLS names the files of the member's certificate, for its server and its client, and
	// of the authority that signs the certificates of all members. nil is plaintext. A
	// replaced certificate is used for connections from then on.
	TLS *dial.Files `json:"tls,omitempty"`
}

// A Peer is a member of a new cluster.
type Peer struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// String returns the peer as etcd writes it.
func (p Peer) String() string { return p.Name + "=" + p.URL }

// dialer returns a function that makes clients of single members.
func (c *Cluster) dialer(logger *slog.Logger) func(string) (*clientv3.Client, error) {
	return func(endpoint string) (*clientv3.Client, error) {
		return dial.New(c.dialOptions(logger, endpoint))
	}
}

// dialOptions returns the options with which clients reach members.
func (c *Cluster) dialOptions(logger *slog.Logger, endpoints ...string) dial.Options {
	o := dial.Options{Endpoints: endpoints, Logger: logger, Reconnect: reconnect, Retries: retries}
	if c.TLS != nil {
		o.TLS = c.TLS.Config
	}
	return o
}

// configure turns the configuration of a cluster of one into the configuration of one of
// several members: with etcd's own log, since the others have to catch up, and with
// listeners. initial lists the members if the data directory is empty; joining says that
// their cluster exists.
func (c *Cluster) configure(cfg *embed.Config, opts Options, initial []Peer, joining bool) error {
	peer, err := url.Parse(c.PeerURL)
	if err != nil {
		return err
	}
	client, err := url.Parse(c.ClientURL)
	if err != nil {
		return err
	}
	listenPeer, peerErr := bindable(*peer)
	listenClient, clientErr := bindable(*client)
	if err := errors.Join(peerErr, clientErr); err != nil {
		return err
	}
	stock := embed.NewConfig()
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = stock.SnapshotCount, stock.SnapshotCatchUpEntries
	cfg.MaxWalFiles = stock.MaxWalFiles
	cfg.StrictReconfigCheck, cfg.MaxLearners = true, 1

	cfg.Name = c.Name
	cfg.InitialCluster = strings.Join(texts(initial), ",")
	cfg.InitialClusterToken = "portolan " + strings.Join(names(initial), ",")
	if joining {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	cfg.AdvertisePeerUrls, cfg.ListenPeerUrls = []url.URL{*peer}, []url.URL{listenPeer}
	cfg.AdvertiseClientUrls = []url.URL{*client}
	cfg.ListenClientUrls = append(cfg.ListenClientUrls, listenClient)
	// gRPC has a server of its own only if HTTP has another address. Nobody uses the HTTP
	// address.
	// https://github.com/etcd-io/etcd/issues/15402
	cfg.ListenClientHttpUrls = []url.URL{{Scheme: "unix", Path: httpSocket(opts.Socket)}}
	if c.TLS != nil {
		info := transport.TLSInfo{CertFile: c.TLS.Cert, KeyFile: c.TLS.Key, TrustedCAFile: c.TLS.CA, ClientCertAuth: true}
		cfg.PeerTLSInfo, cfg.ClientTLSInfo = info, info
		cfg.TlsMinVersion = "TLS1.3"
	}
	return nil
}

func texts(peers []Peer) []string {
	out := make([]string, len(peers))
	for i, p := range peers {
		out[i] = p.String()
	}
	return out
}

func names(peers []Peer) []string {
	out := make([]string, len(peers))
	for i, p := range peers {
		out[i] = p.Name
	}
	slices.Sort(out)
	return out
}

// bindable returns a URL with an IP address for its host, which is what etcd listens on.
func bindable(u url.URL) (url.URL, error) {
	if u.Hostname() == "localhost" || net.ParseIP(u.Hostname()) != nil {
		return u, nil
	}
	addresses, err := net.LookupHost(u.Hostname())
	if err != nil {
		return u, fmt.Errorf("%s: %w: name an address of this machine", u.String(), err)
	}
	u.Host = net.JoinHostPort(addresses[0], u.Port())
	return u, nil
}

// initialMembers says how a member without data comes to its cluster. It is one of the
// initial members; or it was added, and asks the members at Join until one answers or
// ctx ends. report is called with the reason for the wait.
func (c *Cluster) initialMembers(ctx context.Context, logger *slog.Logger, report func(string)) (initial []Peer, joining bool, err error) {
	switch {
	case len(c.Initial) > 0:
		return c.Initial, false, nil
	case len(c.Join) == 0:
		return []Peer{{Name: c.Name, URL: c.PeerURL}}, false, nil
	}
	roster := cluster.New(c.dialer(logger), c.Join...)
	defer roster.Close()
	for {
		view, err := roster.Look(ctx)
		if err == nil {
			initial, err = c.findOwnEntry(view)
			return initial, true, err
		}
		if ctx.Err() == nil {
			report("waiting for a member of the cluster to join: " + oneLine(err))
		}
		if retry.Sleep(ctx, waitingInterval) != nil {
			return nil, false, context.Cause(ctx)
		}
	}
}

// findOwnEntry finds the entry that was added for this member, and returns all members of the
// cluster with this member's name in it.
func (c *Cluster) findOwnEntry(view *cluster.Membership) ([]Peer, error) {
	var out []Peer
	placed := false
	for i := range view.Members {
		m := &view.Members[i]
		mine := slices.Contains(m.PeerURLs, c.PeerURL)
		name := m.Name
		switch {
		case mine && m.Name != "":
			return nil, c.alreadyUsedError(fmt.Sprintf("a member %s at %s has run before, with another data directory", m, c.PeerURL))
		case mine:
			placed, name = true, c.Name
		case m.Name == c.Name:
			return nil, c.alreadyUsedError(fmt.Sprintf("there is a member %s at %s", m, strings.Join(m.PeerURLs, ",")))
		case m.Name == "":
			name = "unstarted-" + cluster.FormatID(m.ID)
		}
		for _, u := range m.PeerURLs {
			out = append(out, Peer{Name: name, URL: u})
		}
	}
	if !placed {
		return nil, fmt.Errorf("no member with the peer URL %s was added to the cluster of %s: run this against a server of that cluster first: %s",
			c.PeerURL, cluster.Names(view.Members), c.addCommand())
	}
	return out, nil
}

// alreadyUsedError is the error of a name or an address that belongs to a member with data, while
// this data directory is empty.
func (c *Cluster) alreadyUsedError(what string) error {
	return fmt.Errorf("%w: %s, and this data directory is empty: a member that has lost its data does not come back as the same: "+
		"start it on its data directory, or replace it: run these against another server of the cluster, and start this one again on an empty directory with --store-join: "+
		"portolan store member remove %s; %s", ErrUsed, what, c.Name, c.addCommand())
}

// replaceable adds to the error of damaged data that this member can be replaced, since
// the others have all the data.
func (c *Cluster) replaceable(err error) error {
	return fmt.Errorf("%w: or, while the other members are well, replace this one: run these against another server, and start this one on an empty directory with --store-join: "+
		"portolan store member remove %s; %s", err, c.Name, c.addCommand())
}

func (c *Cluster) addCommand() string {
	return fmt.Sprintf("portolan store member add %s --peer-url %s", c.Name, c.PeerURL)
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
