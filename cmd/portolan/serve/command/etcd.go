package command

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// etcdPassword is the variable with the password of --etcd-user. There is no flag for it,
// because everybody on the machine can see flags.
const etcdPassword = "PORTOLAN_ETCD_PASSWORD"

// The least values of the limits hold an object and its record; the greatest are the most that
// a client sends.
const (
	minTxnOps       = 3
	minRequestBytes = 64 << 10
	maxRequestBytes = 60 << 20
)

// externalStore holds the flags of an etcd cluster that somebody else runs.
type externalStore struct {
	endpoints    []string
	files        dial.Files
	user         string
	passwordFile string
	maxTxnOps    int
	maxRequest   resource.QuantityValue
}

func (o *externalStore) register(f *pflag.FlagSet) {
	f.StringSliceVar(&o.endpoints, "etcd-endpoints", nil, "https://HOST:PORT of each member of an etcd cluster, instead of the embedded store; HOST:PORT alone is plaintext, unless --etcd-ca, --etcd-cert, --etcd-key or --etcd-server-name is given")
	f.StringVar(&o.files.CA, "etcd-ca", "", "file with the authorities that sign the certificates of etcd, in PEM; default: the authorities of the system")
	f.StringVar(&o.files.Cert, "etcd-cert", "", "file with this server's certificate for etcd; read again at every connection")
	f.StringVar(&o.files.Key, "etcd-key", "", "file with the key of --etcd-cert")
	f.StringVar(&o.files.ServerName, "etcd-server-name", "", "the name in the certificates of etcd, where it is not the host of the endpoint")
	f.StringVar(&o.user, "etcd-user", "", "user of etcd; without one etcd may know the server by the common name of --etcd-cert")
	f.StringVar(&o.passwordFile, "etcd-password-file", "", "file with the password of --etcd-user, read again when etcd asks; without it $"+etcdPassword+" has the password")
	f.IntVar(&o.maxTxnOps, "etcd-max-txn-ops", etcd.StockMaxTxnOps, "the --max-txn-ops of that etcd")
	o.maxRequest.Quantity = *resource.NewQuantity(etcd.StockMaxRequestBytes, resource.BinarySI)
	f.Var(&o.maxRequest, "etcd-max-request-bytes", "the --max-request-bytes of that etcd")
}

// exclude reports the flags that were given although no such cluster is used.
func (o *externalStore) exclude(given func(flag string) bool, add addFault) {
	for _, flag := range []string{
		"etcd-ca", "etcd-cert", "etcd-key", "etcd-server-name", "etcd-user", "etcd-password-file", "etcd-max-txn-ops", "etcd-max-request-bytes",
	} {
		if given(flag) {
			add(flag, "is of an etcd cluster: name that by --etcd-endpoints, or leave it out")
		}
	}
}

func (o *externalStore) validate(add addFault) {
	for i, e := range o.endpoints {
		endpoint, err := o.endpoint(e)
		if err != nil {
			add("etcd-endpoints", "%v", err)
			continue
		}
		o.endpoints[i] = endpoint
		switch {
		case strings.HasPrefix(endpoint, "https://") != o.secure():
			add("etcd-endpoints", "%s: either all endpoints are of TLS or none is", e)
		case !o.secure() && o.user != "" && !onThisMachine(endpoint):
			add("etcd-user", "the password would go to %s in plaintext: use https://", e)
		}
	}
	if !o.secure() && o.files != (dial.Files{}) && len(o.endpoints) > 0 {
		add("etcd-endpoints", "are of plaintext, which has no use for --etcd-ca, --etcd-cert, --etcd-key and --etcd-server-name: use https://")
	}
	if (o.files.Cert == "") != (o.files.Key == "") {
		add("etcd-cert", "goes with --etcd-key: give both or none")
	} else if _, err := o.files.Config(); err != nil {
		add("etcd-ca, --etcd-cert, --etcd-key", "%v", err)
	}
	o.validatePassword(add)
	if o.maxTxnOps < minTxnOps {
		add("etcd-max-txn-ops", "%d is too few: an object takes one, and its record of history another: at least %d", o.maxTxnOps, minTxnOps)
	}
	if n := o.maxRequest.Value(); n < minRequestBytes || n > maxRequestBytes {
		add("etcd-max-request-bytes", "%s: give at least 64Ki and at most 60Mi", o.maxRequest.String())
	}
}

func (o *externalStore) validatePassword(add addFault) {
	switch {
	case o.user == "" && o.passwordFile != "":
		add("etcd-password-file", "is of no use without --etcd-user")
	case o.user != "" && o.passwordFile == "" && os.Getenv(etcdPassword) == "":
		add("etcd-user", "needs a password, by --etcd-password-file or $%s", etcdPassword)
	case o.passwordFile != "":
		if _, err := o.password(); err != nil {
			add("etcd-password-file", "%v", err)
		}
	}
}

// endpoint returns an endpoint with its scheme.
func (o *externalStore) endpoint(s string) (string, error) {
	scheme, address, ok := strings.Cut(s, "://")
	if !ok {
		scheme, address = "http", s
		if o.files != (dial.Files{}) {
			scheme = "https"
		}
	}
	switch scheme {
	case "unix":
		return s, nil
	case "http", "https":
	default:
		return "", fmt.Errorf("%q: %s is neither http nor https", s, scheme)
	}
	address = strings.TrimSuffix(address, "/")
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return "", fmt.Errorf("%q is not https://HOST:PORT", s)
	}
	return scheme + "://" + address, nil
}

// secure says whether the endpoints use TLS. validate ensures that all are like the first.
func (o *externalStore) secure() bool {
	return len(o.endpoints) > 0 && strings.HasPrefix(o.endpoints[0], "https://")
}

// password reads the current password.
func (o *externalStore) password() (string, error) {
	if o.passwordFile == "" {
		return os.Getenv(etcdPassword), nil
	}
	content, err := os.ReadFile(o.passwordFile)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(content), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s is empty", o.passwordFile)
	}
	return password, nil
}

// etcd returns the cluster that the flags describe.
func (o *externalStore) etcd(logger *slog.Logger) *serve.Etcd {
	d := dial.Options{Endpoints: o.endpoints}
	if o.secure() {
		d.TLS = func() (*tls.Config, error) { return o.files.Config() }
	}
	if o.user != "" {
		d.User, d.Password = o.user, o.password
	}
	for _, e := range o.endpoints {
		if !o.secure() && !onThisMachine(e) {
			logger.Warn("all that etcd keeps crosses the network in plaintext, and anyone on the way can change it: use https:// endpoints", "endpoint", e)
		}
	}
	return &serve.Etcd{Dial: d, MaxTxnOps: o.maxTxnOps, MaxRequestBytes: int(o.maxRequest.Value())}
}
