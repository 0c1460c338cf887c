// Package config has the file of an agent: YAML, read strictly, with all faults at once.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/go-multierror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/address"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
)

// The default directories.
const (
	DefaultFile  = "/etc/portolan-agent/config.yaml"
	DefaultState = "/var/lib/portolan-agent"
	DefaultRun   = "/run/portolan-agent"
)

// Config is the file.
type Config struct {
	// API are the URLs of the servers' config API, at which the certificate is renewed. XDS are
	// the addresses, host:port, at which they take proxies. XDSName is the name in their
	// certificates there; empty means the host of each address.
	API     []string `json:"api"`
	XDS     []string `json:"xds"`
	XDSName string   `json:"xdsName,omitempty"`
	Proxy   Proxy    `json:"proxy"`
	// CertificateTTL is how long each certificate should be valid; 0 leaves it to the server.
	CertificateTTL metav1.Duration `json:"certificateTTL,omitzero"`
	// TokenFile is the file of a token that earns a certificate, such as a JWT of the machine's cloud,
	// which something else keeps fresh. The agent reads it when the certificate has expired for so
	// long that it is not renewed; empty for none.
	TokenFile string `json:"tokenFile,omitempty"`
	// State is the directory of the certificate and of the last good configuration, and Run that
	// of the sockets.
	State string `json:"state"`
	Run   string `json:"run"`
	Envoy Envoy  `json:"envoy,omitzero"`
	// Users may use the sockets of xDS and SDS, beside root and the agent's own: the user of an
	// Envoy that another unit runs.
	Users    []string `json:"users,omitempty"`
	LastGood LastGood `json:"lastGood,omitzero"`
	// DNS is the DNS server of the machine; nil for none.
	DNS *DNS `json:"dns,omitempty"`
	// Capture says which traffic of the machine goes through its sidecar; nil for none.
	Capture *Capture `json:"capture,omitempty"`
	// Addresses are those that the machine has by the rules Proxy.IPs, empty while they are unknown.
	// The file does not have them.
	Addresses []string `json:"-"`
	// Metrics is the address of /metrics; empty means 127.0.0.1:15020, "off" none.
	Metrics string `json:"metrics,omitempty"`
	// Ready is the address of /healthz/ready, for load balancers, which tells nothing else; empty
	// means 127.0.0.1:15021, "off" none.
	Ready  string `json:"ready,omitempty"`
	Health Health `json:"health,omitzero"`
}

// Health says what probes of the workload may do.
type Health struct {
	// Exec allows probes that run programs, as the agent's user. Whoever may write the
	// WorkloadGroup or the WorkloadEntry of the machine then says which.
	Exec bool `json:"exec,omitempty"`
}

// Capture are the rules of capture. Rules says what they leave to the rest of the file.
type Capture struct {
	capture.Rules
	// WhenDown says what happens to captured connections while the Envoy does not run; empty means
	// REFUSE.
	WhenDown capture.WhenDown `json:"whenDown,omitempty"`
}

// Off, as the address of metrics or of readiness, means none.
const Off = "off"

// Proxy describes the workload, as xds/bootstrap.Options do.
type Proxy struct {
	Type           node.ProxyType `json:"type"`
	Name           string         `json:"name"`
	Namespace      string         `json:"namespace"`
	ServiceAccount string         `json:"serviceAccount"`
	// IPs are the addresses by which the mesh knows the workload, as rules of package address: none
	// stands for the address from which the machine reaches a server.
	IPs          []string              `json:"ips,omitempty"`
	Labels       map[string]string     `json:"labels,omitempty"`
	Interception node.InterceptionMode `json:"interception,omitempty"`
	Locality     string                `json:"locality,omitempty"`
	Network      string                `json:"network,omitempty"`
	// Cluster is the cluster of Kubernetes that the workload belongs to, by its name in the mesh.
	Cluster string `json:"cluster,omitempty"`
	// Group is the WorkloadGroup in which the servers register the workload; empty for none.
	Group string `json:"group,omitempty"`
}

// Envoy says how the proxy runs.
type Envoy struct {
	// Path is the binary; empty means envoy of the PATH.
	Path string `json:"path,omitempty"`
	// Admin is the address of Envoy's own interface; empty means 127.0.0.1:15000.
	Admin string `json:"admin,omitempty"`
	// Drain is how long connections may go on when the agent ends; 0 leaves it to the mesh
	// (ProxyConfig.terminationDrainDuration), else it is 5 s.
	Drain metav1.Duration `json:"drain,omitzero"`
	// ListenerDrain is how long connections may go on that a change of the configuration, or an Envoy in
	// the place of another, has outdated; 0 leaves it to the mesh (ProxyConfig.drainDuration), else it
	// is 45 s.
	ListenerDrain metav1.Duration `json:"listenerDrain,omitzero"`
	// Args are added to its command line.
	Args []string `json:"args,omitempty"`
	// Patches says what EnvoyFilters may say of its bootstrap; empty means GuardedPatches.
	Patches Patches `json:"patches,omitempty"`
}

// Patches says what EnvoyFilters may say of the bootstrap.
type Patches string

// The values of Patches. GuardedPatches leaves out what bootstrap.Guard does: who the proxy is, whom it
// trusts, who may command it and which code it loads are up to the machine's owner.
const (
	GuardedPatches Patches = "guarded"
	AllPatches     Patches = "all"
	NoPatches      Patches = "none"
)

// LastGood says when a proxy starts without a server.
type LastGood struct {
	// After is how long a proxy waits for a server before it gets what it had last; 0 means 5 s.
	After metav1.Duration `json:"after,omitzero"`
	// MaxAge is how old that may be; 0 means 24 h.
	MaxAge metav1.Duration `json:"maxAge,omitzero"`
}

// The defaults of durations.
const (
	DefaultDrain = 5 * time.Second
	// DefaultListenerDrain is that of Istio.
	DefaultListenerDrain = 45 * time.Second
	DefaultAfter         = 5 * time.Second
	DefaultMaxAge        = 24 * time.Hour
)

// Read reads a file, and adds the defaults and the addresses that the machine has. The error names
// all faults.
func Read(file string) (Config, error) {
	out, err := Stored(file)
	if err != nil {
		return out, err
	}
	return out.WithDefaults().Located(), nil
}

// Stored returns what a file says, and no more, so that it can be written again. The error is that
// of Read.
func Stored(file string) (Config, error) {
	var out Config
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrPermission) {
		return out, fmt.Errorf("%w: run this as root, or as the user of the agent", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("%w: join the machine first (portolan-agent join), or name the file with --config", err)
	}
	if err != nil {
		return out, err
	}
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		return out, fmt.Errorf("%s: %s", file, strings.NewReplacer("error unmarshaling JSON: ", "", "while decoding JSON: ", "", "json: ", "").Replace(err.Error()))
	}
	if err := out.WithDefaults().Validate(); err != nil {
		return out, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

// Located returns the configuration with the addresses that the machine has now, if it has some.
func (c Config) Located() Config {
	c.Addresses, _ = address.Of(c.Proxy.IPs, c.XDS[0]) // whoever needs them looks again
	return c
}

// With returns the configuration with what another one says in its place: servers, addresses, and
// how the Envoy runs. The error names all faults.
func (c Config) With(o Config) (Config, error) {
	if len(o.API) > 0 {
		c.API = o.API
	}
	if len(o.XDS) > 0 {
		c.XDS = o.XDS
	}
	if len(o.Proxy.IPs) > 0 {
		c.Proxy.IPs = o.Proxy.IPs
	}
	c.Envoy.Path, c.Envoy.Admin = cmp.Or(o.Envoy.Path, c.Envoy.Path), cmp.Or(o.Envoy.Admin, c.Envoy.Admin)
	c.Envoy.Drain = cmp.Or(o.Envoy.Drain, c.Envoy.Drain)
	c.Envoy.ListenerDrain = cmp.Or(o.Envoy.ListenerDrain, c.Envoy.ListenerDrain)
	c.Metrics = cmp.Or(o.Metrics, c.Metrics)
	return c, c.Validate()
}

// Write replaces a file, for its user alone. It makes the directory if that is missing.
func (c Config) Write(file string) error {
	text, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(file, text, 0o600)
}

// WithDefaults returns the configuration with a default for what it leaves out.
func (c Config) WithDefaults() Config {
	set := func(d *metav1.Duration, to time.Duration) {
		if d.Duration == 0 {
			d.Duration = to
		}
	}
	set(&c.LastGood.After, DefaultAfter)
	set(&c.LastGood.MaxAge, DefaultMaxAge)
	if c.Metrics == "" {
		c.Metrics = "127.0.0.1:15020"
	}
	if c.Ready == "" {
		c.Ready = "127.0.0.1:15021"
	}
	if c.Capture != nil {
		with := *c.Capture
		with.WhenDown = cmp.Or(with.WhenDown, capture.Refuse)
		c.Capture = &with
		c.Proxy.Interception = cmp.Or(c.Proxy.Interception, node.InterceptionMode(with.Mode), node.InterceptionRedirect)
	}
	if c.Envoy.Path == "" {
		c.Envoy.Path = "envoy"
	}
	if c.Envoy.Admin == "" {
		c.Envoy.Admin = bootstrap.DefaultAdminAddress
	}
	return c
}

// Validate returns all faults, each with its field and what to do.
func (c Config) Validate() error {
	var faults *multierror.Error
	fault := func(format string, args ...any) { faults = multierror.Append(faults, fmt.Errorf(format, args...)) }
	if len(c.API) == 0 {
		fault("api: is missing: name the URL of a server, such as https://mesh.example.com:15080")
	}
	for i, server := range c.API {
		if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Hostname() == "" {
			fault("api[%d] %q: give a URL that begins with https://", i, server)
		}
	}
	if len(c.XDS) == 0 {
		fault("xds: is missing: name the address of a server, such as mesh.example.com:15012")
	}
	for i, address := range c.XDS {
		if _, _, err := net.SplitHostPort(address); err != nil {
			fault("xds[%d] %q: give host:port", i, address)
		}
	}
	for _, a := range []struct{ field, address string }{{"metrics", c.Metrics}, {"ready", c.Ready}} {
		if _, _, err := net.SplitHostPort(a.address); err != nil && a.address != "" && a.address != Off {
			fault("%s %q: give host:port, or off", a.field, a.address)
		}
	}
	switch c.Envoy.Patches {
	case "", GuardedPatches, AllPatches, NoPatches:
	default:
		fault("envoy.patches %q: use guarded, all or none", c.Envoy.Patches)
	}
	for i, name := range c.Users {
		if _, err := capture.UserID(name); err != nil {
			fault("users[%d] %q: %w", i, name, err)
		}
	}
	for _, d := range []struct{ field, path string }{{"state", c.State}, {"run", c.Run}} {
		if !filepath.IsAbs(d.path) {
			fault("%s %q: give the absolute path of a directory", d.field, d.path)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"certificateTTL", c.CertificateTTL.Duration}, {"envoy.drain", c.Envoy.Drain.Duration}, {"envoy.listenerDrain", c.Envoy.ListenerDrain.Duration}, {"lastGood.after", c.LastGood.After.Duration}, {"lastGood.maxAge", c.LastGood.MaxAge.Duration}} {
		if d.value < 0 {
			fault("%s %s: give a time such as 5s", d.field, d.value)
		}
	}
	if c.DNS != nil {
		c.validateDNS(fault)
	}
	if c.Capture != nil {
		c.validateCapture(fault)
	}
	for i, rule := range c.Proxy.IPs {
		if err := address.Validate(rule); err != nil {
			fault("proxy.ips[%d] %q: %w", i, rule, err)
		}
	}
	somewhere := c
	somewhere.Addresses = []string{"127.0.0.1"} // those of the machine are valid
	if _, err := bootstrap.Build(somewhere.Bootstrap()); err != nil {
		for _, one := range each(err) {
			fault("proxy: %w", one)
		}
	}
	if faults != nil {
		faults.ErrorFormat = errlist.Lines
	}
	return faults.ErrorOrNil()
}

// each returns the faults in an error.
func each(err error) []error {
	if many := (*multierror.Error)(nil); errors.As(err, &many) {
		return many.Errors
	}
	return []error{err}
}

func (c Config) validateCapture(fault func(string, ...any)) {
	rules := c.Rules()
	if err := rules.Validate(); err != nil {
		for _, one := range each(err) {
			fault("%w", one)
		}
	}
	if mode := capture.Mode(c.Proxy.Interception); mode != rules.Mode {
		fault("proxy.interception: is %q, and capture.mode %q: give both the same, REDIRECT or TPROXY, or leave capture.mode out", mode, rules.Mode)
	}
	switch c.Capture.WhenDown {
	case "", capture.Refuse, capture.Pass:
	default:
		fault("capture.whenDown: is %q: give %s or %s", c.Capture.WhenDown, capture.Refuse, capture.Pass)
	}
}

// Rules are the rules of capture, with what they leave to the rest of the file: the mode is that of
// the proxy, the families are those of its addresses, and the user is that of the agent.
func (c Config) Rules() capture.Rules {
	rules := c.Capture.Rules
	rules.Mode = cmp.Or(rules.Mode, capture.Mode(c.Proxy.Interception))
	if !rules.IPv4 && !rules.IPv6 {
		for _, ip := range c.Addresses {
			is6 := strings.Contains(ip, ":")
			rules.IPv4, rules.IPv6 = rules.IPv4 || !is6, rules.IPv6 || is6
		}
	}
	if rules.ProxyUser == "" {
		uid, _ := c.Owner()
		rules.ProxyUser = strconv.Itoa(uid)
	}
	if c.DNS != nil {
		rules.DNS = c.questions(rules.DNS)
	}
	return rules
}

// Uncaptured are addresses of the machine in a family that is not captured, though the file does not
// say so: connections to these and from them pass by the sidecar.
func (c Config) Uncaptured() []string {
	if c.Capture == nil || c.Capture.IPv4 || c.Capture.IPv6 {
		return nil
	}
	return address.Beside(c.Addresses)
}

// Owner is the user whose state directory it is, as whom the agent runs. A directory that is
// missing is to be of the user who asks.
func (c Config) Owner() (uid, gid int) {
	if info, err := os.Stat(c.State); err == nil {
		of := info.Sys().(*syscall.Stat_t)
		return int(of.Uid), int(of.Gid)
	}
	return os.Geteuid(), os.Getegid()
}

// UserIDs are the numbers of Users.
func (c Config) UserIDs() []int {
	var out []int
	for _, name := range c.Users {
		if id, err := capture.UserID(name); err == nil { // Validate tells of those that are unknown
			n, _ := strconv.Atoi(id)
			out = append(out, n)
		}
	}
	return out
}

// Certificate is the directory of the certificate.
func (c Config) Certificate() string { return filepath.Join(c.State, "certificate") }

// Kept is the directory of the last good configuration.
func (c Config) Kept() string { return filepath.Join(c.State, "last-good") }

// Drained is the file that says why the machine is drained. It is there as long as that is so.
func (c Config) Drained() string { return filepath.Join(c.State, "drained") }

// XDSSocket is the socket at which the proxy gets its configuration.
func (c Config) XDSSocket() string { return filepath.Join(c.Run, "xds.sock") }

// SDSSocket is the socket at which it gets its certificate.
func (c Config) SDSSocket() string { return filepath.Join(c.Run, "sds.sock") }

// StatusSocket is the socket of portolan-agent status.
func (c Config) StatusSocket() string { return filepath.Join(c.Run, "status.sock") }

// Bootstrap returns the options of Envoy's bootstrap: all comes over the agent's sockets. It needs
// Addresses.
func (c Config) Bootstrap() bootstrap.Options {
	return bootstrap.Options{
		Type: c.Proxy.Type, Name: c.Proxy.Name, Namespace: c.Proxy.Namespace, ServiceAccount: c.Proxy.ServiceAccount, IPs: c.Addresses,
		Labels: c.Proxy.Labels, InterceptionMode: c.Proxy.Interception, Locality: c.Proxy.Locality, Network: c.Proxy.Network, ClusterID: c.Proxy.Cluster, WorkloadGroup: c.Proxy.Group,
		XDSAddresses: []string{"unix://" + c.XDSSocket()}, SDSSocket: c.SDSSocket(), AdminAddress: c.Envoy.Admin,
		DNSCapture: c.DNS != nil,
	}
}

// GRPC returns the options of the bootstrap of a gRPC client or server without a proxy. It reads
// the certificate's files, and replaced ones again.
func (c Config) GRPC() bootstrap.Options {
	o := c.Bootstrap()
	dir := c.Certificate()
	o.Type, o.SDSSocket, o.InterceptionMode, o.DNSCapture = node.Proxyless, "", "", false
	o.Certificate = node.CertificateFiles{Chain: filepath.Join(dir, "cert-chain.pem"), Key: filepath.Join(dir, "key.pem"), Roots: filepath.Join(dir, "root-cert.pem")}
	return o
}
