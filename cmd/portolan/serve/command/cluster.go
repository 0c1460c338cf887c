package command

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/etcd/peercert"
)

// storeCluster holds the flags of an embedded store that is one of several members.
type storeCluster struct {
	name      string
	peerURL   string
	clientURL string
	initial   []string
	join      []string
	files     dial.Files
	// joinServer is the config API of a server whose store to join. place is what that server
	// gave this one; nil before it joins.
	joinServer string
	place      *peercert.Place
}

// Either of the first two makes the store one of several.
var clusterFlags = []string{
	"store-name", "store-peer-url", "store-client-url", "store-initial-cluster", "store-join",
	"store-cert", "store-key", "store-ca", "join",
}

func (o *storeCluster) register(f *pflag.FlagSet) {
	f.StringVar(&o.name, "store-name", "", "name of this server's member of a store of several, such as cp-1")
	f.StringVar(&o.peerURL, "store-peer-url", "", "where the other members of the store reach this one, such as https://10.0.0.1:2380; makes the store one of several")
	f.StringVar(&o.clientURL, "store-client-url", "", "where the other servers reach this member; the host of --store-peer-url with port "+serve.DefaultClientPort+" unless given")
	f.StringSliceVar(&o.initial, "store-initial-cluster", nil, "members of a new store, as NAME=PEER-URL, this one among them; for the first start")
	f.StringSliceVar(&o.join, "store-join", nil, "client URLs of members of the store that this one was added to (portolan store member add); for the first start")
	f.StringVar(&o.joinServer, "join", "", "URL of the config API of a server whose store this one is to join, such as https://10.0.0.1:15080, with the token of portolan store member invite in --token-file; for the first start")
	f.StringVar(&o.files.Cert, "store-cert", "", "file with the certificate of this member, PEM, for servers and clients, with the hosts of its URLs in it; it may be replaced while the server runs. Without one the server has an authority of its own for the store")
	f.StringVar(&o.files.Key, "store-key", "", "file with the key of --store-cert, PEM")
	f.StringVar(&o.files.CA, "store-ca", "", "file with the authority that signs the certificates of all members, PEM")
}

// cluster returns nil if the store is a single member.
func (o *storeCluster) cluster() *member.Cluster {
	if o.peerURL == "" {
		return nil
	}
	c := &member.Cluster{Name: o.name, PeerURL: o.peerURL, ClientURL: o.clientURL, Join: o.join}
	for _, text := range o.initial {
		name, u, _ := strings.Cut(text, "=")
		c.Initial = append(c.Initial, member.Peer{Name: name, URL: u})
	}
	if o.secured() {
		files := o.files
		c.TLS = &files
	}
	return c
}

func (o *storeCluster) secured() bool { return o.files.Cert+o.files.Key+o.files.CA != "" }

// adopt uses what the server was given when it joined the store, unless a flag says otherwise.
func (o *storeCluster) adopt(dataDir string) (err error) {
	if o.place, err = peercert.In(dataDir).Place(); err != nil || o.place == nil {
		return err
	}
	o.name, o.peerURL = cmp.Or(o.name, o.place.Name), cmp.Or(o.peerURL, o.place.PeerURL)
	if o.clientURL == "" && o.peerURL == o.place.PeerURL {
		o.clientURL = o.place.ClientURL
	}
	if len(o.join) == 0 {
		o.join = o.place.Join
	}
	return nil
}

func (o *storeCluster) validateJoin(given func(flag string) bool, dataDir string, inProcess bool, add addFault) {
	if u, err := url.Parse(o.joinServer); err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !onThisMachine(o.joinServer)) {
		add("join", "%q is not the URL of the config API of another server, such as https://10.0.0.1:15080", o.joinServer)
	}
	for _, flag := range clusterFlags {
		if flag != "join" && given(flag) {
			add(flag, "is in the token, or comes with the place in the store: leave it out with --join")
		}
	}
	if inProcess {
		add("store-in-process", "is for a store of one: leave it out with --join")
	}
	if hasStore(dataDir) {
		add("join", "%s has a store already: name an empty directory with --data-dir", dataDir)
	}
}

// validate reports the faults of the flags, and fills in defaults.
func (o *storeCluster) validate(given func(flag string) bool, dataDir string, inProcess bool, add addFault) {
	if err := o.adopt(dataDir); err != nil {
		add("data-dir", "%v", err)
		return
	}
	if o.joinServer != "" && o.place == nil {
		o.validateJoin(given, dataDir, inProcess, add)
		return
	}
	if !slices.ContainsFunc(clusterFlags, given) && o.place == nil {
		return
	}
	if inProcess {
		add("store-in-process", "is for a store of one: leave it out with --store-peer-url")
	}
	if err := cluster.CheckName(o.name); err != nil {
		add("store-name", "%v", err)
	}
	o.peerURL = strings.TrimSuffix(o.peerURL, "/")
	o.clientURL = strings.TrimSuffix(o.clientURL, "/")
	o.checkURLs(add)
	o.checkInitial(add)
	for i, u := range o.join {
		o.join[i] = strings.TrimSuffix(u, "/")
		o.checkURL("store-join", o.join[i], add)
	}
	if len(o.initial) > 0 && len(o.join) > 0 {
		add("store-join", "is for a member that was added to a store, and --store-initial-cluster for one of a new store: give one of them")
	}
	if o.secured() {
		o.checkFiles(add)
	}
}

func (o *storeCluster) checkURLs(add addFault) {
	if o.peerURL == "" {
		add("store-peer-url", "is missing: it makes the store one of several: give the address of this machine at which the other members reach this one, such as https://10.0.0.1:2380")
		return
	}
	fine := o.checkURL("store-peer-url", o.peerURL, add)
	if u, err := url.Parse(o.peerURL); fine && err == nil && o.clientURL == "" {
		o.clientURL = u.Scheme + "://" + net.JoinHostPort(u.Hostname(), serve.DefaultClientPort)
	}
	if o.clientURL != "" {
		o.checkURL("store-client-url", o.clientURL, add)
	}
	if o.clientURL == o.peerURL {
		add("store-client-url", "%s is the peer URL too: give it a port of its own", o.clientURL)
	}
}

// checkURL reports what is wrong with a URL of a member.
func (o *storeCluster) checkURL(flag, text string, add addFault) (fine bool) {
	if err := cluster.CheckURL(text); err != nil {
		add(flag, "%v", err)
		return false
	}
	switch encrypted := strings.HasPrefix(text, "https:"); {
	case encrypted && !o.secured() && len(o.initial)+len(o.join) > 0 && o.place == nil:
		add(flag, "%s needs TLS: give --store-cert, --store-key and --store-ca; or begin with one server, and have the others join it with --join", text)
		return false
	case !encrypted && o.secured():
		add(flag, "%s is plaintext, and there is a certificate: use https", text)
		return false
	}
	return true
}

// checkInitial reports what is wrong with the members of a new store.
func (o *storeCluster) checkInitial(add addFault) {
	const flag = "store-initial-cluster"
	names, urls := map[string]bool{}, map[string]bool{}
	for i, text := range o.initial {
		name, u, _ := strings.Cut(text, "=")
		u = strings.TrimSuffix(u, "/")
		o.initial[i] = name + "=" + u
		if err := cluster.CheckName(name); err != nil {
			add(flag, "%s: %v", text, err)
		}
		o.checkURL(flag, u, add)
		if names[name] {
			add(flag, "there are two members called %s", name)
		}
		if urls[u] {
			add(flag, "there are two members at %s", u)
		}
		names[name], urls[u] = true, true
	}
	if own := o.name + "=" + o.peerURL; len(o.initial) > 0 && !slices.Contains(o.initial, own) {
		add(flag, "this member is not in it as %s: it takes --store-name and --store-peer-url as they are", own)
	}
}

// checkFiles reports what is wrong with the certificate.
func (o *storeCluster) checkFiles(add addFault) {
	missing := false
	for _, f := range []struct{ flag, file string }{{"store-cert", o.files.Cert}, {"store-key", o.files.Key}, {"store-ca", o.files.CA}} {
		if f.file == "" {
			add(f.flag, "is missing: TLS between the members takes a certificate, its key and the authority")
			missing = true
		} else if _, err := os.Stat(f.file); err != nil {
			add(f.flag, "%v", err)
			missing = true
		}
	}
	if missing {
		return
	}
	if err := o.checkCertificate(); err != nil {
		add("store-cert", "%v", err)
	}
}

// checkCertificate returns why the other members would refuse the certificate, nil if they
// would not.
func (o *storeCluster) checkCertificate() error {
	config, err := o.files.Config()
	if err != nil {
		return err
	}
	leaf := config.Certificates[0].Leaf
	intermediates := x509.NewCertPool()
	for _, der := range config.Certificates[0].Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(c)
		}
	}
	var errs []error
	for _, use := range []struct {
		usage x509.ExtKeyUsage
		name  string
	}{{x509.ExtKeyUsageServerAuth, "server"}, {x509.ExtKeyUsageClientAuth, "client"}} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: config.RootCAs, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{use.usage}})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s cannot be used as that of a %s, and a member is both: %w", o.files.Cert, use.name, err))
		}
	}
	for _, text := range slices.Compact([]string{hostOf(o.peerURL), hostOf(o.clientURL)}) {
		if text == "" {
			continue
		}
		if err := leaf.VerifyHostname(text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.files.Cert, err))
		}
	}
	return errors.Join(errs...)
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
