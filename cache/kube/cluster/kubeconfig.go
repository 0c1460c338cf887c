package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/portolan-mesh/portolan/storage/errlist"
)

// The bound of requests. Nearly all are watches, which last for minutes.
const (
	requestsPerSecond = 50
	requestBurst      = 100
)

// ParseRef splits a reference [NAME=]KUBECONFIG[#CONTEXT] into Options. A NAME has the form of the
// entries by which Secrets name clusters, as in Istio. It returns all faults at once.
func ParseRef(ref string) (Options, error) {
	o, file := Options{}, ref
	var faults *multierror.Error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			faults = multierror.Append(faults, fmt.Errorf(format, args...))
		}
	}
	if name, path, ok := strings.Cut(ref, "="); ok && !strings.ContainsAny(name, "/#") {
		refuse(name == "", "%q has an empty name: write NAME=KUBECONFIG#CONTEXT", ref)
		refuse(name != "" && len(validation.IsConfigMapKey(name)) > 0, "%q: %q is no name of a cluster: that has letters, digits, \"-\", \"_\" and \".\", 253 characters at most", ref, name)
		o.Name, file = name, path
	}
	var chosen bool
	o.File, o.Context, chosen = strings.Cut(file, "#")
	refuse(o.File == "", "%q names no kubeconfig: write KUBECONFIG#CONTEXT", ref)
	refuse(chosen && o.Context == "", "%q has an empty context: write one behind the #, or leave the # out for the current context of the kubeconfig", ref)
	if faults != nil {
		faults.ErrorFormat = errlist.OneLine
	}
	return o, faults.ErrorOrNil()
}

// source is a kubeconfig as read.
type source struct {
	config *api.Config
	// context is the name of the context in use.
	context string
	// hash tells two contents apart, those of the files that it names included.
	hash [sha256.Size]byte
}

// readKubeconfig reads and checks the kubeconfig. Its errors contain nothing of the
// content, which has credentials.
func readKubeconfig(o *Options) (*source, error) {
	content, where := o.Content, "kubeconfig"
	if o.File != "" {
		where = "kubeconfig " + o.File
		var err error
		if content, err = os.ReadFile(o.File); err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("%s: is no valid kubeconfig: check its YAML and the types of its fields", where)
	}
	s := &source{config: config, context: o.Context}
	if s.context == "" {
		s.context = config.CurrentContext
	}
	if s.context == "" {
		return nil, noContext(o, where, config)
	}
	used := config.Contexts[s.context]
	if used == nil {
		return nil, fmt.Errorf("%s: has no context %q, only %s", where, s.context, strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", "))
	}
	cluster, user := config.Clusters[used.Cluster], config.AuthInfos[used.AuthInfo]
	if cluster == nil {
		return nil, fmt.Errorf("%s: its context %q names the cluster %q, which it does not have", where, s.context, used.Cluster)
	}
	if user == nil && used.AuthInfo != "" {
		return nil, fmt.Errorf("%s: its context %q names the user %q, which it does not have", where, s.context, used.AuthInfo)
	}
	if user == nil {
		user = &api.AuthInfo{}
	}
	if o.File == "" {
		if err := checkForeign(cluster, user); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		s.hash = sha256.Sum256(content)
		return s, nil
	}
	cluster.LocationOfOrigin, user.LocationOfOrigin = o.File, o.File
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return s, s.sum(content, cluster.CertificateAuthority, user.ClientCertificate, user.ClientKey)
}

// noContext returns the error of a kubeconfig that does not say which of its contexts to use.
func noContext(o *Options, where string, config *api.Config) error {
	names := strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", ")
	switch {
	case names == "":
		return fmt.Errorf("%s: has no contexts: it needs one with a cluster and a user", where)
	case o.File == "":
		return fmt.Errorf("%s: has no current-context: set it to one of its contexts: %s", where, names)
	}
	return fmt.Errorf("%s: has no current-context: write %s#CONTEXT with one of its contexts: %s", where, o.File, names)
}

// sum sets the hash.
func (s *source) sum(content []byte, files ...string) error {
	all := sha256.New()
	all.Write(content)
	for _, file := range files {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("kubeconfig: %w", err)
		}
		sum := sha256.Sum256(text)
		all.Write(sum[:])
	}
	all.Sum(s.hash[:0])
	return nil
}

// checkForeign refuses what a kubeconfig from a cluster must not do on this machine: run
// programs, read files, and trust any server.
func checkForeign(cluster *api.Cluster, user *api.AuthInfo) error {
	var faults *multierror.Error
	refuse := func(bad bool, text string) {
		if bad {
			faults = multierror.Append(faults, errors.New(text))
		}
	}
	refuse(user.Exec != nil, "exec: would run a program here: use a token or a certificate")
	refuse(user.AuthProvider != nil, "auth-provider: would run a program here: use a token or a certificate")
	refuse(user.TokenFile != "", "tokenFile: would read a file here: use token")
	refuse(user.ClientCertificate != "", "client-certificate: would read a file here: use client-certificate-data")
	refuse(user.ClientKey != "", "client-key: would read a file here: use client-key-data")
	refuse(cluster.CertificateAuthority != "", "certificate-authority: would read a file here: use certificate-authority-data")
	refuse(cluster.InsecureSkipTLSVerify, "insecure-skip-tls-verify: would trust any server: use certificate-authority-data")
	checkUsable(cluster, user, refuse)
	if faults != nil {
		faults.ErrorFormat = errlist.OneLine
	}
	return faults.ErrorOrNil()
}

// client is the client of one content of a kubeconfig.
type client struct {
	context string
	hash    [sha256.Size]byte
	server  string
	http    *http.Client
	typed   rest.Interface
	plain   rest.Interface
	dynamic dynamic.Interface
}

func newClient(o *Options, s *source) (*client, error) {
	out, err := makeClient(o, s)
	if err != nil && o.File == "" {
		return nil, errUnusable
	}
	return out, err
}

// unusable refuses all requests.
type unusable struct{ why error }

// RoundTrip implements http.RoundTripper.
func (u unusable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &reason{ErrUnusable, u.why.Error()}
}

// unusableClient returns a client whose requests all fail for a reason.
func unusableClient(why error) (*client, error) {
	out := &client{}
	return out, out.speak(&rest.Config{Host: "localhost", Transport: unusable{why}}, "no kubeconfig")
}

func makeClient(o *Options, s *source) (*client, error) {
	where := "kubeconfig " + o.File
	config, err := clientcmd.NewNonInteractiveClientConfig(*s.config, s.context, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	if server.Scheme != "https" && !loopback(server) {
		return nil, fmt.Errorf("%s: %s is on another machine, and would be followed in plaintext: use https", where, server.Host)
	}
	out := &client{context: s.context, hash: s.hash, server: server.String()}
	return out, out.speak(config, where)
}

// speak has the client send requests as a config says, which comes from somewhere.
func (c *client) speak(config *rest.Config, where string) (err error) {
	config.UserAgent = "portolan"
	config.QPS, config.Burst = requestsPerSecond, requestBurst
	config.WarningHandler = rest.NoWarnings{}
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, c.http); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if c.typed, err = rest.UnversionedRESTClientForConfigAndClient(typedConfig(config), c.http); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if c.plain, err = rest.UnversionedRESTClientForConfigAndClient(plainConfig(config), c.http); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

func loopback(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}
