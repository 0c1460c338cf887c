package command

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage"
)

// xdsFlags holds the flags of how proxies are served.
type xdsFlags struct {
	routeDelta string
	http3      bool
	consent    bool
}

// The values of --route-delta.
const (
	routeDeltaAuto = "auto"
	routeDeltaOff  = "off"
)

func (o *xdsFlags) register(f *pflag.FlagSet) {
	f.BoolVar(&o.http3, "http3", false, "have gateways take HTTP/3 on the UDP port of each server that ends HTTPS and asks for no certificate of clients, and tell clients so. All servers of a store should agree")
	f.BoolVar(&o.consent, "require-host-consent", false, "refuse a VirtualService, DestinationRule, ServiceEntry, Gateway or Ingress for a host that a service of another namespace has, unless a HostGrant of that namespace, or a role of its writer, lets it speak for the host; one that is stored already has no effect for the host. All servers of a store should agree")
	f.StringVar(&o.routeDelta, "route-delta", routeDeltaAuto, "auto sends an Envoy that takes virtual hosts one by one only those that changed; off sends whole route tables to all")
}

func (o *xdsFlags) validate(add addFault) {
	if o.routeDelta != routeDeltaAuto && o.routeDelta != routeDeltaOff {
		add("route-delta", "%q is neither auto nor off", o.routeDelta)
	}
}

// apply requires valid flags.
func (o *xdsFlags) apply(to *serve.Options) { to.WholeRoutes = o.routeDelta == routeDeltaOff }

// lifecycleFlags say for how long proxies stay with a server.
type lifecycleFlags struct {
	maxAge     time.Duration
	drain      time.Duration
	firstSyncs int
	streams    uint32
	balance    time.Duration
	lease      time.Duration
}

const (
	defaultMaxAge  = 30 * time.Minute
	defaultDrain   = 5 * time.Second
	maxDrain       = time.Hour
	defaultBalance = 10 * time.Second
	minBalance     = 100 * time.Millisecond
)

func (o *lifecycleFlags) register(f *pflag.FlagSet) {
	f.DurationVar(&o.maxAge, "max-connection-age", defaultMaxAge, "for how long a proxy stays connected, a tenth more or less; then it connects anew, maybe to another server; 0 is for ever")
	f.DurationVar(&o.drain, "drain-time", defaultDrain, "time over which a server that stops sends its proxies to the others; nothing is waited for where there is no other")
	f.DurationVar(&o.lease, "machine-lease", storage.DefaultLease, "within which time a machine that registers itself is gone from the mesh when it is gone; all servers of a store should agree")
	f.DurationVar(&o.balance, "balance-interval", defaultBalance, "how often a server that has many more proxies than the others sends some of them away; 0 is never")
}

// registerLimits adds those of the flags that are limits.
func (o *lifecycleFlags) registerLimits(f *pflag.FlagSet) {
	f.Uint32Var(&o.streams, "max-streams-per-connection", serve.DefaultMaxStreamsPerConnection, "how many streams a client may have on one connection: an Envoy has one, or one for each type; an agent that relays several proxies has one for each")
	f.IntVar(&o.firstSyncs, "max-first-syncs", 100, "how many proxies are brought up from nothing at one time; others wait in the order in which they came, a hundred times as many at most")
}

func (o *lifecycleFlags) validate(add addFault) {
	if o.maxAge < 0 || o.maxAge > 0 && o.maxAge < time.Second {
		add("max-connection-age", "%s is neither 0 nor a second or more", o.maxAge)
	}
	if _, err := storage.LeaseTTL(o.lease); err != nil || o.lease == 0 {
		add("machine-lease", "%s is not between %s and %s", o.lease, storage.MinLease, storage.MaxLease)
	}
	if o.drain < 0 || o.drain > maxDrain {
		add("drain-time", "%s is not between 0 and %s", o.drain, maxDrain)
	}
	if o.balance < 0 || o.balance > 0 && o.balance < minBalance {
		add("balance-interval", "%s is neither 0 nor %s or more", o.balance, minBalance)
	}
	if o.streams < 1 {
		add("max-streams-per-connection", "%d is less than 1", o.streams)
	}
	if o.firstSyncs < 1 {
		add("max-first-syncs", "%d is less than 1", o.firstSyncs)
	}
}

// apply requires valid flags.
func (o *lifecycleFlags) apply(to *serve.Options) {
	to.MaxConnectionAge, to.DrainTime, to.BalanceInterval, to.MachineLease = o.maxAge, o.drain, o.balance, o.lease
	to.MaxStreamsPerConnection, to.MaxFirstSyncs = o.streams, o.firstSyncs
}
