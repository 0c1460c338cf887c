package schema

// routeMatch has the fields that the matches of all routes of VirtualServices share: the
// port, gateways and clients of a route.
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
