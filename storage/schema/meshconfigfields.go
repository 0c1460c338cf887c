package schema

// The reasons why fields of MeshConfig have no effect, as sentences about the field.
const (
	ofClusters    = "has no effect here: Kubernetes only: it is about services of several clusters"
	ofAmbient     = "has no effect here: it is for ambient mode, and proxies here speak no HBONE"
	ofCA          = "has no effect here: the servers sign certificates themselves: see portolan ca"
	ofSources     = "has no effect here: name sources with --config-dir, --config-source and --config-kube of each server"
	ofTrust       = "has no effect here: machines and servers trust the authorities of the mesh: see portolan ca"
	ofPods        = "has no effect here: Kubernetes only: it follows annotations of pods: scrape the application and the proxy by themselves"
	ofVerifying   = "has no effect here: Istio has deprecated it. Proxies verify servers unless a DestinationRule has insecureSkipVerify"
	ofChiron      = "has no effect here: Kubernetes only: Istio has deprecated it"
	ofAddresses   = "has no effect here: a proxy learns the servers from portolan proxy bootstrap or its agent"
	ofDeprecated  = "has no effect here: Istio has deprecated it"
	ofMachines    = "has no effect here: each machine says how it captures traffic: see its agent"
	ofProbes      = "has no effect here: a WorkloadGroup says how its machines are probed"
	ofExposing    = "has no effect here: it is for ambient mode unless applyToSidecars is set, and its policies select by labels of Namespace objects: use defaultServiceExportTo"
	ofSecrets     = "has no effect here: credentials of proxies are Secrets, or files of their machines"
	ofPlaintext   = "has no effect here: a proxy reaches servers on other machines by mutual TLS always"
	ofTelemetry   = "has no effect here: a Telemetry of the mesh has it: spec.tracing[].enableIstioTags"
	ofProviders   = "has no effect here: name the service in extensionProviders, and the provider in defaultProviders or a Telemetry"
	ofFiles       = "has no effect here: each machine says where its files are: run in the file of its agent"
	ofBinaries    = "has no effect here: each machine says where its Envoy is: envoy.path in the file of its agent"
	ofAdmin       = "has no effect here: each machine says where its Envoy has its interface: envoy.admin in the file of its agent, or portolan bootstrap --admin-address"
	ofStatusPort  = "has no effect here: each machine says where its agent listens: metrics and ready in the file of its agent"
	ofTemplates   = "has no effect here: an Envoy with a bootstrap of your own is one that the agent does not run: portolan-agent run --no-envoy"
	ofNames       = "has no effect here: Envoy does not limit the length of names"
	ofImages      = "has no effect here: machines have no container image"
	ofKeys        = "has no effect here: a stock Envoy has no provider of private keys"
	ofTags        = "has no effect here: Istio has deprecated it, and proxies put no tags into the names of statistics"
	ofExchange    = "has no effect here: proxies exchange no metadata in headers"
	ofListeners   = "has no effect here: it needs the names of listeners before a server sends them: use globalDownstreamConnectionLimit"
	ofLogService  = "has no effect here: name the service in extensionProviders as envoyHttpAls or envoyTcpAls, and the provider in defaultProviders or a Telemetry"
	ofTracer      = "has no effect here: proxies trace for a provider alone: name one in defaultProviders.tracing or a Telemetry"
	ofGoogle      = "has no effect here: a stock Envoy reports nothing to Google Cloud itself: use opentelemetry, envoyOtelAls and prometheus"
	ofCompression = "has no effect here: neither an agent nor the interface of an Envoy compresses statistics"
	ofOwnCerts    = "has no effect here: ISTIO_MUTUAL uses the certificate of the proxy and the authorities of the mesh"
	ofServersFile = "set it in the file of --mesh-config and restart the servers: it holds from their start"
)

// fileOnly are the fields that servers read once at their start, from the file of
// --mesh-config. An object must not set them.
var fileOnly = []string{"rootNamespace", "trustDomain"}

// meshConfigFields is the one table of what becomes of each field of MeshConfig. Fields that
// are served in part have a table of their own.
func meshConfigFields() fields {
	return serve(
		"accessLogEncoding", "accessLogFile", "accessLogFormat", "connectTimeout", "defaultDestinationRuleExportTo", "defaultHttpRetryPolicy", "defaultProviders",
		"defaultServiceExportTo", "defaultVirtualServiceExportTo", "disableEnvoyListenerLog", "discoverySelectors", "dnsRefreshRate", "enableAutoMtls", "h2UpgradePolicy", "inboundClusterStatName",
		"inboundTrafficPolicy", "ingressClass", "ingressControllerMode", "ingressSelector", "ingressService", "localityLbSetting", "meshMTLS", "outboundClusterStatName", "outboundTrafficPolicy", "pathNormalization",
		"protocolDetectionTimeout", "proxyHttpPort", "proxyInboundListenPort", "proxyListenPort", "rootNamespace", "tcpKeepalive", "tlsDefaults",
		"trustDomain", "trustDomainAliases", "zoneAwareLbSetting",
	).
		with("defaultConfig", proxyConfigFields()).
		with("extensionProviders", providerFields()).
		with("defaultTrafficPolicy", fields{}.with("connectionPool", connectionPoolServed()).with("outlierDetection", outlierDetectionServed().without(ofDeprecated, "consecutiveErrors"))).
		without(ofLogService, "enableEnvoyAccessLogService").
		without(ofTracer, "enableTracing").
		without(ofClusters, "serviceScopeConfigs", "serviceSettings").
		without(ofAmbient, "hboneIdleTimeout").
		without(ofCA, "ca").
		without(ofChiron, "certificates").
		without(ofTrust, "caCertificates").
		without(ofSources, "configSources").
		without(ofPods, "enablePrometheusMerge").
		without(ofVerifying, "verifyCertificateAtClient").
		without(ofExposing, "serviceEntryVisibility")
}

// providerFields are the kinds of extension providers.
func providerFields() fields {
	return serve("name", "datadog", "envoyExtAuthzGrpc", "envoyExtAuthzHttp", "envoyFileAccessLog", "envoyHttpAls", "envoyOtelAls", "envoyTcpAls",
		"opentelemetry", "prometheus", "skywalking", "zipkin").
		without(ofGoogle, "stackdriver").
		without(ofSecrets, "sds").
		without(ofDeprecated, "lightstep", "opencensus")
}

// proxyConfigFields are the fields of defaultConfig.
func proxyConfigFields() fields {
	return serve("concurrency", "drainDuration", "fileFlushInterval", "fileFlushMinSizeKb", "holdApplicationUntilProxyStarts", "meshId",
		"proxyMetadata", "proxyStatsMatcher", "runtimeValues", "serviceCluster", "statsdUdpAddress", "terminationDrainDuration", "tracingServiceName").
		with("connectionSettings", connectionFields()).
		with("envoyMetricsService", remoteServiceFields()).
		with("gatewayTopology", serve("forwardClientCertDetails", "numTrustedProxies", "proxyProtocol")).
		with("proxyHeaders", proxyHeaderFields()).
		with("tracing", tracingFields()).
		without(ofLogService, "envoyAccessLogService").
		without(ofCompression, "statsCompression").
		without(ofAddresses, "discoveryAddress").
		without(ofPlaintext, "controlPlaneAuthPolicy").
		without(ofMachines, "interceptionMode").
		without(ofProbes, "readinessProbe").
		without(ofTrust, "caCertificatesPem").
		without(ofFiles, "configPath").
		without(ofBinaries, "binaryPath").
		without(ofAdmin, "proxyAdminPort").
		without(ofStatusPort, "statusPort").
		without(ofTemplates, "customConfigFile", "proxyBootstrapTemplatePath").
		without(ofNames, "statNameLength").
		without(ofImages, "image").
		without(ofKeys, "privateKeyProvider").
		without(ofTags, "extraStatTags").
		without(ofDeprecated, "availabilityZone", "discoveryRefreshDelay", "envoyMetricsServiceAddress", "sds", "zipkinAddress")
}

// remoteServiceFields are the fields of a service that the bootstrap of an Envoy names.
func remoteServiceFields() fields {
	return serve("address", "tcpKeepalive").
		with("tlsSettings", serve("mode", "sni", "subjectAltNames").
			without(ofOwnCerts, "caCertificates", "caCrl", "clientCertificate", "credentialName", "insecureSkipVerify", "privateKey"))
}

func connectionFields() fields {
	return serve("clusterPerConnectionBufferLimitBytes", "globalDownstreamConnectionLimit", "http2InitialConnectionWindowSize",
		"http2InitialStreamWindowSize", "httpDrainTimeout", "httpHeadersWithUnderscoresAction", "httpIdleTimeout", "httpMaxConcurrentStreams",
		"httpMaxConnectionDuration", "httpMaxStreamDuration", "httpMergeSlashes", "httpPathWithEscapedSlashesAction", "httpRequestHeadersTimeout",
		"httpRequestTimeout", "httpStreamIdleTimeout", "listenerPerConnectionBufferLimitBytes", "profile").
		without(ofListeners, "listenerConnectionLimit")
}

func tracingFields() fields {
	return serve("customTags", "maxPathTagLength", "sampling").
		without(ofTelemetry, "enableIstioTags").
		without(ofProviders, "datadog", "lightstep", "openCensusAgent", "stackdriver", "tlsSettings", "zipkin")
}

func proxyHeaderFields() fields {
	return serve("attemptCount", "envoyDebugHeaders", "forwardedClientCert", "preserveHttp1HeaderCase", "requestId", "server",
		"setCurrentClientCertDetails", "xForwardedHost", "xForwardedPort").
		without(ofExchange, "metadataExchangeHeaders")
}
