package schema

// routeMatch is what the matches of all routes of VirtualServices have in common: for which
// port, gateways and clients a route is.
type routeMatch interface {
	GetPort() uint32
	GetSourceLabels() map[string]string
	GetGateways() []string
}

func checkRouteMatch(c checker, m routeMatch) {
	c.at("port").optionalPort(m.GetPort())
	c.at("sourceLabels").labels(m.GetSourceLabels())
	each(c.at("gateways"), m.GetGateways(), checkGatewayName)
}
