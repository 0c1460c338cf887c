package verdict

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// Code names a kind of verdict: PTL and four digits. It never changes its meaning.
type Code string

// Severity is how bad a verdict is. Lower values are worse.
type Severity int

// The severities.
const (
	// Error: something that the object asks for does not happen.
	Error Severity = iota
	// Warning: it happens, but probably not as the user meant.
	Warning
	// Info: it has no effect now, and may have one when other objects are added.
	Info
)

// String returns the severity as users write it.
func (s Severity) String() string { return finding.Severities[s] }

// The codes. A code is never used again for anything else.
const (
	HostUnknown         Code = "PTL0101"
	SubsetUnknown       Code = "PTL0102"
	GatewayUnknown      Code = "PTL0103"
	SubsetEmpty         Code = "PTL0104"
	HostTwice           Code = "PTL0105"
	AddressTwice        Code = "PTL0106"
	PortTwice           Code = "PTL0107"
	SelectorEmpty       Code = "PTL0108"
	WorkloadPort        Code = "PTL0109"
	PortUnknown         Code = "PTL0110"
	HostShadowed        Code = "PTL0111"
	HostOutsideGateway  Code = "PTL0112"
	RouteUnreachable    Code = "PTL0113"
	RuleUnused          Code = "PTL0114"
	SubsetTwice         Code = "PTL0115"
	GatewayUnused       Code = "PTL0116"
	SidecarUnused       Code = "PTL0117"
	SidecarsOverlap     Code = "PTL0118"
	ServerConflict      Code = "PTL0119"
	PolicyTwice         Code = "PTL0120"
	FieldNotServed      Code = "PTL0121"
	HostWithoutService  Code = "PTL0123"
	ImportsNothing      Code = "PTL0124"
	HostNotVisible      Code = "PTL0125"
	ProxyOffline        Code = "PTL0126"
	NeverRouted         Code = "PTL0127"
	Unexpected          Code = "PTL0128"
	AddressTaken        Code = "PTL0129"
	ListenerTaken       Code = "PTL0130"
	NotBuilt            Code = "PTL0131"
	ClientsEmpty        Code = "PTL0132"
	NotForClients       Code = "PTL0133"
	ListenerUnused      Code = "PTL0134"
	StreamShadowed      Code = "PTL0135"
	SNITaken            Code = "PTL0136"
	StreamUnused        Code = "PTL0137"
	HostOfOthers        Code = "PTL0138"
	HostRefused         Code = "PTL0139"
	DelegateUnknown     Code = "PTL0141"
	DelegateNotVisible  Code = "PTL0142"
	NoDelegate          Code = "PTL0143"
	DelegateConflict    Code = "PTL0144"
	DelegateUnused      Code = "PTL0145"
	DelegateElsewhere   Code = "PTL0146"
	HostUnnamed         Code = "PTL0151"
	HostUnresolved      Code = "PTL0152"
	MatchPort           Code = "PTL0153"
	MatchGateway        Code = "PTL0154"
	HostShort           Code = "PTL0155"
	HostAlias           Code = "PTL0156"
	ServerUnrouted      Code = "PTL0171"
	RoutesUnserved      Code = "PTL0172"
	SourceShadowed      Code = "PTL0181"
	SourceUnread        Code = "PTL0182"
	ZonesUnknown        Code = "PTL0201"
	RuleOfNobody        Code = "PTL0211"
	LocalityUnknown     Code = "PTL0212"
	PortUncaptured      Code = "PTL0213"
	NoneUncaptured      Code = "PTL0214"
	WorkloadUnselected  Code = "PTL0215"
	SocketShared        Code = "PTL0216"
	EndpointTwice       Code = "PTL0217"
	HeadlessShared      Code = "PTL0218"
	RegistrationRefused Code = "PTL0231"
	RegistrationPartly  Code = "PTL0232"
	ProbeUnreported     Code = "PTL0233"
	HealthUnread        Code = "PTL0234"
	CredentialMissing   Code = "PTL0301"
	CredentialSidecars  Code = "PTL0302"
	ServerUnverified    Code = "PTL0303"
	CertificateNeeded   Code = "PTL0304"
	CertificateMissing  Code = "PTL0311"
	NameOutside         Code = "PTL0331"
	SecretClosed        Code = "PTL0351"
	CertificateEnds     Code = "PTL0352"
	HostUncertified     Code = "PTL0353"
	OutsideMesh         Code = "PTL0360"
	PeersOverlap        Code = "PTL0361"
	PeersUnused         Code = "PTL0362"
	PeersCutOff         Code = "PTL0363"
	SidecarUnlabelled   Code = "PTL0364"
	SidecarMissing      Code = "PTL0365"
	IdentityAny         Code = "PTL0366"
	ServerFirst         Code = "PTL0367"
	PeersChange         Code = "PTL0368"
	PlaintextBegins     Code = "PTL0369"
	PeersPortUnused     Code = "PTL0370"
	PolicyUnused        Code = "PTL0371"
	PolicyShutsOut      Code = "PTL0372"
	PolicyShadowed      Code = "PTL0373"
	RuleNeverMatches    Code = "PTL0374"
	PolicyPlaintext     Code = "PTL0375"
	PolicyNoRequests    Code = "PTL0376"
	PolicyNotForGRPC    Code = "PTL0377"
	PathsUnmerged       Code = "PTL0378"
	HostWithoutPort     Code = "PTL0379"
	AddressesClaimed    Code = "PTL0380"
	ProviderMissing     Code = "PTL0381"
	ProvidersDiffer     Code = "PTL0382"
	ProviderUnasked     Code = "PTL0383"
	PolicyAfterGreeting Code = "PTL0384"
	ServerUnasking      Code = "PTL0385"
	KeysMissing         Code = "PTL0391"
	KeysAwaited         Code = "PTL0392"
	TokensUnverified    Code = "PTL0393"
	TokensUnknown       Code = "PTL0394"
	IssuerUnknown       Code = "PTL0395"
	PolicyServicePort   Code = "PTL0396"
	IssuerElsewhere     Code = "PTL0411"
	RoleMissing         Code = "PTL0421"
	UserUnproved        Code = "PTL0422"
	RoleUnbound         Code = "PTL0423"
	IssuerKeys          Code = "PTL0424"
	MeshConfigUnused    Code = "PTL0431"
	ProxyConfigOverlap  Code = "PTL0432"
	LogFormatUnfit      Code = "PTL0433"
	LogUnwritten        Code = "PTL0434"
	SelectorsUnused     Code = "PTL0435"
	SelectorsUnreadable Code = "PTL0436"
	TelemetryShadowed   Code = "PTL0451"
	ReporterMissing     Code = "PTL0452"
	ReporterUnfit       Code = "PTL0453"
	TelemetryNotForGRPC Code = "PTL0454"
	TelemetryUnmatched  Code = "PTL0455"
	PatchFailed         Code = "PTL0461"
	PatchIdle           Code = "PTL0462"
	PatchFaulty         Code = "PTL0471"
	PatchOdd            Code = "PTL0472"
	PatchOpens          Code = "PTL0473"
	PolicyWeakened      Code = "PTL0474"
	ModuleMissing       Code = "PTL0481"
	ModuleAwaited       Code = "PTL0482"
	ModuleUnverified    Code = "PTL0483"
	PluginUnmatched     Code = "PTL0484"
	PluginNotForGRPC    Code = "PTL0485"
	IngressUnserved     Code = "PTL0501"
	ClusterElsewhere    Code = "PTL0511"
	ClusterTaken        Code = "PTL0512"
	ClusterUnusable     Code = "PTL0513"
	ClusterAway         Code = "PTL0514"
)

// Kind describes a Code.
type Kind struct {
	Code Code
	// Istio is the code of Istio's analysis with the same meaning, empty if there is none.
	Istio    string
	Severity Severity
	// Condition is the type of the condition that reports the verdict in the object's status; empty
	// for a warning of changes, for a source, which is no object, and for what is served as it stands.
	Condition string
	// Title says what is odd, and Effect what follows from it.
	Title, Effect string
}

// kinds is the table of all codes, in order.
var kinds = []Kind{
	{HostUnknown, "IST0101", Error, status.ResolvedRefs, "a destination names a host that no service has", "requests that take the route are answered with 503"},
	{SubsetUnknown, "IST0101", Error, status.ResolvedRefs, "a destination names a subset that no DestinationRule has", "requests that take the route are answered with 503"},
	{GatewayUnknown, "IST0101", Error, status.ResolvedRefs, "a VirtualService or a policy about requests names a Gateway that is not there", "no proxy has the routes for that gateway, or the policy"},
	{SubsetEmpty, "", Warning, status.ResolvedRefs, "a subset selects no endpoint of the service", "requests to the subset are answered with 503"},
	{HostTwice, "", Warning, status.Conflicted, "a host of a ServiceEntry is a host of another that the same proxies may see", "in one namespace their endpoints are put together and the oldest says the rest; of several namespaces a proxy uses that of its own, else the oldest"},
	{AddressTwice, "", Warning, status.Conflicted, "two ServiceEntries share an address and a port", "proxies tell HTTP requests apart by their host; all other connections are the oldest's, and where only one speaks HTTP the other one's"},
	{PortTwice, "IST0134", Warning, status.Conflicted, "two ServiceEntries share a TCP port, and neither has an address nor gets one", "all connections are the oldest's"},
	{SelectorEmpty, "IST0127", Info, status.ResolvedRefs, "a workloadSelector selects no workload", "the service has no endpoint until a workload has the labels"},
	{WorkloadPort, "", Warning, status.ResolvedRefs, "a workload names a port that no ServiceEntry which selects it has", "the port has no effect"},
	{PortUnknown, "IST0101", Error, status.ResolvedRefs, "a destination names a port that the service does not have", "requests that take the route are answered with 503"},
	{HostShadowed, "IST0109", Error, status.Conflicted, "a VirtualService of the mesh gateway has a host that another one has, which comes first", "sidecars use the other one alone for the host"},
	{HostOutsideGateway, "IST0132", Error, status.ResolvedRefs, "a host of a VirtualService is none that the Gateway serves", "the gateway has no route for the host"},
	{RouteUnreachable, "IST0130", Warning, status.Conflicted, "an HTTP route, or a path of an Ingress, stands behind one that takes all its requests", "no request takes the route"},
	{RuleUnused, "IST0101", Warning, status.ResolvedRefs, "a DestinationRule is for a host that no service has", "the rule has no effect"},
	{SubsetTwice, "", Warning, status.Conflicted, "a subset has the name of one that comes first", "the subset has no effect"},
	{GatewayUnused, "IST0101", Warning, status.ResolvedRefs, "the selector of a Gateway, or the mesh's for Ingresses, selects no gateway proxy", "no proxy listens on its ports"},
	{SidecarUnused, "", Info, status.ResolvedRefs, "the selector of a Sidecar selects no workload", "the Sidecar has no effect"},
	{SidecarsOverlap, "IST0110, IST0111", Warning, status.Conflicted, "two Sidecars are for the same workloads", "the one that comes first is used alone"},
	{ServerConflict, "IST0145", Error, status.Conflicted, "a server of a Gateway has the port of another one that comes first, and cannot share it", "the server has no listener"},
	{PolicyTwice, "", Warning, status.Conflicted, "a DestinationRule has a traffic policy, and an older one for the same host has one", "the policy of the younger rule has no effect"},
	{FieldNotServed, "", Warning, status.PartlyServed, "a field is not served", "the field has no effect"},
	{HostWithoutService, "", Warning, status.ResolvedRefs, "a host of a VirtualService of the mesh gateway is of no service", "no sidecar has a route for the host"},
	{ImportsNothing, "", Warning, status.ResolvedRefs, "a host of an egress listener of a Sidecar imports no service", "the entry has no effect"},
	{HostNotVisible, "IST0101", Error, status.ResolvedRefs, "a destination names a service that is not exported to the namespace of the proxies", "requests that take the route are answered with 503"},
	{ProxyOffline, "", Warning, status.ResolvedRefs, "the proxy beside an endpoint was connected and is not any more", "the endpoint keeps its traffic, and its proxy no longer follows changes"},
	{NeverRouted, "", Warning, status.Conflicted, "all destinations of a route that have a weight have weight 0", "requests that take the route are answered with 503"},
	{Unexpected, "", Warning, status.PartlyServed, "a field is accepted and does not do what it seems to", "the message says what"},
	{AddressTaken, "", Error, status.Conflicted, "a ServiceEntry speaks HTTP at an address and a port where another one does not", "the other one gets all that proxies capture on the way to the address"},
	{ListenerTaken, "", Warning, status.Conflicted, "an egress listener of a Sidecar has the port of a service that its proxies see and that it does not carry", "the proxies cannot call the service on that port"},
	{NotBuilt, "", Error, status.Rejected, "a server cannot make a resource of an object", "proxies keep its last good form"},
	{ClientsEmpty, "", Info, status.ResolvedRefs, "the workloadSelector of a DestinationRule selects no proxy of its namespace", "the rule has no effect until a proxy has the labels"},
	{NotForClients, "", Info, status.PartlyServed, "gRPC clients without a proxy do not take a field, and some see the object", "the field has no effect on their calls; with a redirect or a direct response, TLS, or resolution DYNAMIC_DNS, the calls fail"},
	{ListenerUnused, "", Warning, status.ResolvedRefs, "an egress listener of a Sidecar carries no service", "the proxies do not open it"},
	{StreamShadowed, "IST0109", Error, status.Conflicted, "tcp routes are for a host, or a server of a Gateway, whose connections a route takes that comes first", "proxies use the other route alone for the connections"},
	{SNITaken, "", Warning, status.Conflicted, "a tls route names a host that an earlier route names, for the same addresses", "no connection takes the route for the name"},
	{StreamUnused, "", Warning, status.ResolvedRefs, "http, tcp or tls routes are for hosts without a port of the kind", "the routes have no effect"},
	{HostOfOthers, "", Info, status.ResolvedRefs, "an object speaks for a host of which another namespace has the oldest service, and no HostGrant of that namespace consents", "it counts as if the host were its own, also for proxies of the other namespace; `--require-host-consent` would take its effect for the host away"},
	{HostRefused, "", Error, status.ResolvedRefs, "with `--require-host-consent`, an object speaks for a host of which another namespace has the oldest service, no HostGrant of that namespace consents, and the writer of the object had no right to the host", "the object has no effect for the host"},
	{DelegateUnknown, "IST0101", Error, status.ResolvedRefs, "a route delegates to a VirtualService that is not there", "the route is left out"},
	{DelegateNotVisible, "IST0101", Error, status.ResolvedRefs, "a route delegates to a VirtualService that is not exported to its namespace", "the route is left out"},
	{NoDelegate, "IST0101", Error, status.ResolvedRefs, "a route delegates to a VirtualService that has hosts of its own", "the route is left out"},
	{DelegateConflict, "", Error, status.Conflicted, "a match of a delegate's route goes with no match of the route that delegates to it", "the route of the delegate is left out"},
	{DelegateUnused, "", Info, status.ResolvedRefs, "no VirtualService delegates to one that has no hosts", "its routes have no effect until one does"},
	{DelegateElsewhere, "", Warning, status.ResolvedRefs, "a match of a delegate's route names gateways, and the VirtualService that delegates to it is for none of them", "the match has no effect there"},
	{HostUnnamed, "", Error, status.ResolvedRefs, "a tcp route leads to a service with resolution DYNAMIC_DNS", "connections that take the route are closed, as they name no host to look up"},
	{HostUnresolved, "", Error, status.ResolvedRefs, "an HTTP route leads to a service with resolution DYNAMIC_DNS from a port that no such service has", "sidecars do not look hosts up on the port, and answer requests that take the route with 503"},
	{MatchPort, "", Warning, status.ResolvedRefs, "a match for sidecars is for a port that no service of the hosts has", "the match has no effect"},
	{MatchGateway, "", Warning, status.ResolvedRefs, "a match names a gateway that is none of those of its VirtualService", "the match has no effect for that gateway"},
	{HostShort, "", Info, "", "an object names hosts without a dot", "they stand for hosts of the namespace of the object, as in Istio"},
	{HostAlias, "", Warning, status.ResolvedRefs, "a VirtualService or DestinationRule is for the host of a Service of the type ExternalName, which is an alias of another service", "it has no effect for the host: what is said for the other service counts"},
	{ServerUnrouted, "", Warning, status.ResolvedRefs, "a server of a Gateway passes connections on, and no tcp or tls route is for it", "proxies close what comes to it, and do not listen where nothing else has the port"},
	{RoutesUnserved, "", Warning, status.ResolvedRefs, "http, tcp or tls routes are for a Gateway without a server of the kind for their hosts and ports", "the gateway does not have the routes"},
	{SourceShadowed, "", Warning, status.Conflicted, "two sources of configuration have an object of one kind, namespace and name", "that of the source that comes first is used alone"},
	{SourceUnread, "", Warning, "", "a source of configuration, of services or of secrets cannot be read as it is now, or has what Portolan refuses", "what it last had is served, and findings on other objects may be wrong"},
	{ZonesUnknown, "", Info, status.ResolvedRefs, "a DestinationRule has load shared among zones, and no proxy that it is for knows the endpoints of its own service", "proxies prefer their region, and no zone"},
	{RuleOfNobody, "", Info, status.ResolvedRefs, "no known proxy is in a namespace whose proxies use a DestinationRule: those of its own, or where it is in the namespace of the service or in the root namespace, those that it is exported to", "the rule has no effect until one is"},
	{LocalityUnknown, "", Warning, status.ResolvedRefs, "a DestinationRule prefers localities, and no endpoint of the service, or no proxy that uses the rule, says where it runs", "all endpoints are of one unknown locality, or the proxies are: failover is the same for all, and distribute is for nobody or sends nothing to them"},
	{PortUncaptured, "", Warning, status.Conflicted, "a ServiceEntry has a port without HTTP that an older one has, and sidecars that capture no traffic see both", "from these sidecars all connections on the port are the oldest's"},
	{NoneUncaptured, "", Warning, status.PartlyServed, "a ServiceEntry has resolution NONE, and sidecars that capture no traffic see it", "calls through these sidecars fail, as they do not know where the client was going"},
	{WorkloadUnselected, "", Info, status.ResolvedRefs, "no ServiceEntry, and no Service of a cluster, selects a WorkloadEntry", "it is an endpoint of no service, and a proxy at its address has neither its labels nor its locality, until one does"},
	{SocketShared, "", Warning, status.Conflicted, "two sidecars at the address of an endpoint capture no traffic and bind the same ports", "each connection goes to either of them"},
	{EndpointTwice, "", Warning, status.Conflicted, "two WorkloadEntries are one endpoint of a service: they have an address and a port in common", "clients have the endpoint once, with the labels, the weight and the locality of one of the two"},
	{HeadlessShared, "", Warning, status.Conflicted, "a workload of a headless service is one of an older headless service too, on the same port without HTTP", "what sidecars that capture traffic send to the workload on the port is of the older service: its clusters, routes and rules count"},
	{RegistrationRefused, "", Warning, status.PartlyServed, "a proxy asks to be registered in a WorkloadGroup, and is not", "it has no WorkloadEntry, so that no service has it as an endpoint"},
	{RegistrationPartly, "", Info, status.PartlyServed, "a proxy is registered, and its WorkloadEntry is not all that its WorkloadGroup and its node ask for", "it lacks labels, or gets no requests before the machine has reported its health"},
	{ProbeUnreported, "", Warning, status.PartlyServed, "a WorkloadEntry names a probe, and nobody has reported the health of the workload", "it gets no requests until its agent has reported it healthy"},
	{HealthUnread, "", Warning, status.PartlyServed, "the condition Healthy of a WorkloadEntry in a cluster has a status that is none", "the health is as if nobody had reported it: where it decides, the workload gets no requests"},
	{CredentialMissing, "", Error, status.ResolvedRefs, "a DestinationRule asks for TLS with a secret that a proxy which uses the rule does not have", "requests of the proxy are answered with 503, and connections closed, until the secret is there: nothing leaves in plaintext"},
	{CredentialSidecars, "", Warning, status.PartlyServed, "a DestinationRule without a workloadSelector names a credential, and there are sidecars that use the rule", "these sidecars have no credential: their requests are answered with 503, and connections closed; gateways use the rule"},
	{ServerUnverified, "", Warning, status.PartlyServed, "a DestinationRule asks for TLS, and nothing says which name the certificate of the server must have", "proxies send to any server whose certificate leads to the authority"},
	{CertificateNeeded, "", Info, status.PartlyServed, "a DestinationRule asks for TLS within the mesh", "only proxies with a certificate of their own use it; requests of the others are answered with 503, and connections closed"},
	{CertificateMissing, "", Error, status.ResolvedRefs, "a server of a Gateway ends TLS, and its proxies lack a certificate for it", "proxies refuse what comes for its hosts, until they have one"},
	{NameOutside, "", Error, status.ResolvedRefs, "a tls route of a gateway names a host of no server that passes TLS and that the route is for", "gateways close connections that ask for the name"},
	{SecretClosed, "", Error, status.PartlyServed, "a secret is sealed with a key that the leading server lacks", "proxies of that server do not get the secret"},
	{CertificateEnds, "", Warning, status.PartlyServed, "a certificate in a secret has ended, ends within 30 days, or is not valid yet", "peers refuse it once it has ended, and before it is valid"},
	{HostUncertified, "", Warning, status.ResolvedRefs, "a host of a server of a Gateway is none of the names of the server's certificate", "clients that verify the certificate refuse the connection"},
	{OutsideMesh, "", Info, status.PartlyServed, "endpoints of a ServiceEntry outside the mesh (location) are said to take mutual TLS", "clients send them plaintext where no rule asks for TLS"},
	{PeersOverlap, "", Warning, status.Conflicted, "an older PeerAuthentication is for the same workloads: those of the mesh, of the namespace, or with the same labels", "the older one counts alone for them"},
	{PeersUnused, "", Info, status.ResolvedRefs, "a PeerAuthentication has a selector that selects no workload, or that is in the root namespace, where it selects none", "the policy has no effect"},
	{PeersCutOff, "", Warning, status.PartlyServed, "a PeerAuthentication demands mutual TLS, and endpoints are not labelled for it, rules or enableAutoMtls tell clients something else, or proxies have no certificate", "what is sent in plaintext is refused"},
	{SidecarUnlabelled, "", Info, status.PartlyServed, "an endpoint without a label for mutual TLS has a connected sidecar with a certificate of the mesh", "clients send it plaintext"},
	{SidecarMissing, "", Warning, status.ResolvedRefs, "an endpoint is labelled for mutual TLS, and no sidecar with a certificate of the mesh was known at its address for an hour", "what clients with a certificate send is refused"},
	{IdentityAny, "", Info, status.PartlyServed, "an endpoint takes mutual TLS, and nothing names its service account", "clients take any workload of the mesh for it"},
	{ServerFirst, "", Warning, status.PartlyServed, "a port for which servers speak first takes mutual TLS and plaintext", "clients in plaintext wait"},
	{PeersChange, "", Info, status.PartlyServed, "PeerAuthentications of a namespace have changed, and not all proxies follow them yet", "servers take what the former and the new ones ask for, until clients follow"},
	{PlaintextBegins, "", Warning, "", "a change takes encryption away: modes, a rule or labels of endpoints", "clients send plaintext, or servers take it, once the change is through; policies that name identities know no caller then"},
	{PeersPortUnused, "", Info, status.ResolvedRefs, "portLevelMtls of a PeerAuthentication names a port at which no workload of it takes connections", "what it says of the port has no effect"},
	{PolicyUnused, "", Info, status.ResolvedRefs, "an AuthorizationPolicy, a RequestAuthentication, a Telemetry, a WasmPlugin, an EnvoyFilter or a ProxyConfig selects no known proxy, or targets no gateway", "it has no effect"},
	{PolicyShutsOut, "", Info, status.PartlyServed, "an ALLOW policy has no rules, and no other ALLOW policy is for its workloads", "the workloads refuse every request"},
	{PolicyShadowed, "", Warning, status.Conflicted, "a DENY policy refuses all that an ALLOW policy allows", "the ALLOW policy has no effect"},
	{RuleNeverMatches, "", Warning, status.PartlyServed, "a policy names a path, a host or a principal that no request has", "the value matches nothing"},
	{PolicyPlaintext, "", Warning, status.PartlyServed, "a policy names identities, and ports that it is for take plaintext", "a caller in plaintext has no identity: principals do not match it, notPrincipals do"},
	{PolicyNoRequests, "", Warning, status.PartlyServed, "a policy names what requests of HTTP have, and is for ports of TCP", "there rules of ALLOW that name it match nothing, and other rules match without regard to it"},
	{PolicyNotForGRPC, "", Warning, status.PartlyServed, "a policy names what gRPC servers cannot judge, or has action AUDIT, and is for one", "there rules of ALLOW that name it match nothing, other rules match without regard to it, and AUDIT has no effect"},
	{PathsUnmerged, "", Info, status.PartlyServed, "a policy refuses or asks by path, and the mesh does not merge slashes", "a path with a slash twice is another path, which the policy does not match"},
	{HostWithoutPort, "", Info, status.PartlyServed, "a policy refuses by host, and not the host with a port", "a request whose client writes a port behind the host is not refused"},
	{AddressesClaimed, "", Warning, status.PartlyServed, "a policy of a sidecar names addresses behind proxies, and no identity beside them", "a caller that writes such an address in X-Forwarded-For is taken for it"},
	{ProviderMissing, "", Error, status.ResolvedRefs, "a CUSTOM policy names a provider that the mesh configuration does not have, or whose service a proxy of the policy does not see", "what the policy matches there is refused"},
	{ProvidersDiffer, "", Error, status.Conflicted, "CUSTOM policies of two providers are for one workload", "what either matches is refused"},
	{ProviderUnasked, "", Warning, status.PartlyServed, "a CUSTOM policy of a provider that answers over HTTP is for a port of TCP", "connections to that port pass without being asked about"},
	{PolicyAfterGreeting, "", Info, status.PartlyServed, "a policy is for a port where servers speak first", "a caller that the policy refuses gets what the server says before the first bytes of the caller"},
	{ServerUnasking, "", Warning, status.PartlyServed, "a CUSTOM policy is for a gRPC server", "the server asks nobody, and refuses what the policy matches"},
	{KeysMissing, "", Warning, status.ResolvedRefs, "the leading server cannot fetch the keys for a rule of a RequestAuthentication", "proxies go on with the keys that were fetched before; without any, they refuse the tokens of the rule with 401, and let requests without a token through"},
	{KeysAwaited, "", Info, status.ResolvedRefs, "the leading server has not fetched the keys for a rule of a RequestAuthentication yet", "proxies refuse the tokens of the rule with 401 until it has"},
	{TokensUnverified, "", Warning, status.PartlyServed, "a RequestAuthentication is for a gRPC server", "the server verifies no tokens: it takes requests with any, and rules of AuthorizationPolicies about tokens match nothing"},
	{TokensUnknown, "", Warning, status.PartlyServed, "an AuthorizationPolicy names what tokens say, and is for a workload for which no RequestAuthentication is", "no token is verified there: values about tokens match no request, and notValues match every one"},
	{IssuerUnknown, "", Warning, status.PartlyServed, "an AuthorizationPolicy names an issuer of tokens, and no RequestAuthentication verifies its tokens for the policy's workloads", "proxies refuse the tokens of the issuer with 401: the value matches no request"},
	{PolicyServicePort, "", Warning, status.PartlyServed, "a policy names the port of a service, and its workloads take connections at another", "the value matches nothing: ports are those of workloads"},
	{IssuerElsewhere, "", Warning, status.ResolvedRefs, "a TokenIssuer is outside the root namespace of the mesh", "its tokens prove nothing"},
	{RoleMissing, "", Error, status.ResolvedRefs, "a RoleBinding names a role that is not there", "its subjects get no rights by it"},
	{UserUnproved, "", Info, status.PartlyServed, "a User has no token that is valid", "nobody is let in as the user without a client certificate of that name"},
	{RoleUnbound, "", Info, status.PartlyServed, "no RoleBinding names a Role", "the Role gives nobody any right until one does"},
	{IssuerKeys, "", Warning, status.ResolvedRefs, "the leading server cannot fetch the keys of a TokenIssuer", "its tokens prove nothing, but those that are signed with keys which were fetched before"},
	{MeshConfigUnused, "", Warning, status.ResolvedRefs, "a MeshConfig is outside the root namespace of the mesh", "it has no effect"},
	{ProxyConfigOverlap, "", Warning, status.Conflicted, "an older ProxyConfig is for the same proxies: those of the mesh, of the namespace, or with the same labels", "the older one counts alone for them"},
	{LogFormatUnfit, "", Warning, status.PartlyServed, "accessLogFormat of the mesh is no JSON object, and accessLogEncoding is JSON", "access logs have Istio's own fields"},
	{LogUnwritten, "", Info, status.PartlyServed, "a MeshConfig has accessLogFormat or accessLogEncoding, and the mesh neither an accessLogFile nor the provider envoy for all", "nothing is logged in that format, unless a Telemetry of a namespace names the provider envoy"},
	{SelectorsUnused, "", Info, status.PartlyServed, "a MeshConfig has discoverySelectors, and the mesh takes nothing from a cluster that they would apply to", "they have no effect until a flag or a Secret names a cluster"},
	{SelectorsUnreadable, "", Error, status.PartlyServed, "a discoverySelector of a MeshConfig that did not come by the config API cannot be read", "the last ones that could be read count: in a server that has seen none, all namespaces do"},
	{TelemetryShadowed, "", Warning, status.Conflicted, "an older Telemetry is for the same proxies: those of the mesh, of the namespace, or those that both select", "the older one is used alone for them"},
	{ReporterMissing, "", Error, status.ResolvedRefs, "a Telemetry or a MeshConfig names a provider that the mesh configuration does not have, or whose service a proxy does not see, or a Telemetry traces without a provider", "proxies send it nothing, and go on with all else"},
	{ReporterUnfit, "", Warning, status.PartlyServed, "a Telemetry names a provider for what Envoy cannot send to it", "proxies send it nothing"},
	{TelemetryNotForGRPC, "", Info, status.PartlyServed, "a Telemetry is for a gRPC program without a proxy", "the program takes neither logs, traces nor metrics from it"},
	{TelemetryUnmatched, "", Warning, status.ResolvedRefs, "an entry of a Telemetry is for what comes into workloads alone (SERVER), and the Telemetry is for gateways alone", "the entry has no effect"},
	{PatchFailed, "", Error, status.PartlyServed, "a patch of an EnvoyFilter could not be applied to a resource that it matches", "proxies have the resource without the patch; other patches of it apply"},
	{PatchIdle, "", Warning, status.ResolvedRefs, "a patch of an EnvoyFilter matches nothing in any connected proxy, though the EnvoyFilter selects some", "the patch has no effect until something matches"},
	{PatchFaulty, "", Error, status.PartlyServed, "a patch of an EnvoyFilter has a value that cannot be read, or that no Envoy takes", "the patch has no effect"},
	{PatchOdd, "", Warning, status.PartlyServed, "a patch of an EnvoyFilter has something that Envoy does not know or will lose, or matches a filter by a name that Envoy has lost", "the message says what"},
	{PatchOpens, "", Warning, status.PartlyServed, "a patch of an EnvoyFilter takes away, or changes, what authenticates, authorizes or encrypts", "its proxies may let in what policies would refuse, also in plaintext"},
	{PolicyWeakened, "", Warning, status.PartlyServed, "a patch of an EnvoyFilter takes away, or changes, what enforces an AuthorizationPolicy on some of its workloads", "these may let in what the policy would refuse: `portolan authz check` says what a request gets"},
	{ModuleMissing, "", Error, status.ResolvedRefs, "the leading server cannot fetch the module of a WasmPlugin, or nothing says where it is", "proxies go on with the plugin as it was before; without that failStrategy decides whether all requests pass or none"},
	{ModuleAwaited, "", Warning, status.ResolvedRefs, "the leading server has not fetched the module of a WasmPlugin yet", "proxies go on with the plugin as it was before; without that failStrategy decides whether all requests pass or none"},
	{ModuleUnverified, "", Warning, status.PartlyServed, "a WasmPlugin gives the sha256 of a file on the machines", "nobody checks it, and an Envoy reads a replaced file only when the WasmPlugin changes"},
	{PluginUnmatched, "", Warning, status.ResolvedRefs, "a WasmPlugin matches a port that none of its proxies has, or what comes into workloads alone (SERVER) and is for gateways alone", "that part of it matches nothing"},
	{PluginNotForGRPC, "", Warning, status.PartlyServed, "a WasmPlugin is for a gRPC program without a proxy", "the program runs no plugins: what the plugin would refuse or change passes there as it is"},
	{IngressUnserved, "", Warning, status.ResolvedRefs, "an Ingress is of a class that gateways here do not serve", "no gateway has its routes"},
	{ClusterElsewhere, "", Warning, status.ResolvedRefs, "a Secret has the label `istio/multiCluster: \"true\"`, and is outside the root namespace of the mesh", "its clusters are not followed"},
	{ClusterTaken, "", Error, status.Conflicted, "a Secret names a cluster that a flag of the server or an older Secret names", "its kubeconfig for the cluster has no effect"},
	{ClusterUnusable, "", Error, status.ResolvedRefs, "the leading server cannot use the kubeconfig of a cluster that a Secret names", "it follows the cluster by the last good one; if it has none, it serves what was last known of the cluster"},
	{ClusterAway, "", Warning, status.ResolvedRefs, "the leading server cannot follow a cluster that a Secret names", "what was last known of it is served"},
}

// Follows reports whether users normally write the missing object after this one, as the
// binding after its Role, or servers or agents do. Then a write is not warned about it.
func (c Code) Follows() bool {
	return c == UserUnproved || c == RoleUnbound || c == KeysAwaited || c == ModuleAwaited || c == ProbeUnreported
}

// Kinds iterates over the table of all codes, in order.
func Kinds() iter.Seq[Kind] { return slices.Values(kinds) }

// Kind looks a code up. It returns the zero Kind for an unknown code.
func (c Code) Kind() Kind {
	for _, k := range kinds {
		if k.Code == c {
			return k
		}
	}
	return Kind{}
}

// Severity returns the severity of the code.
func (c Code) Severity() Severity { return c.Kind().Severity }

// Names returns the code, followed by Istio's code of the same meaning if there is one.
func (c Code) Names() string {
	if istio := c.Kind().Istio; istio != "" {
		return string(c) + ", " + istio
	}
	return string(c)
}
