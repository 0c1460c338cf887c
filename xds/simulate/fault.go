package simulate

import (
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	dynamichttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	faultFilter   = "envoy.filters.http.fault"
	grpcWebFilter = "envoy.filters.http.grpc_web"
)

// filters are the HTTP filters that affect a request.
type filters struct {
	faults, cors bool
	// resolves: the proxy resolves the hosts of requests to dynamic DNS clusters.
	resolves bool
	guards   []guard
	// passedOver are the names of filters that the simulation does not know.
	passedOver []string
}

// filtersOf fails on filters that the simulation does not know and may not pass over.
func (p *Proxy) filtersOf(manager *hcmv3.HttpConnectionManager, result *Result) (filters, error) {
	var out filters
	for _, f := range manager.GetHttpFilters() {
		config, err := p.configOf(f)
		if err != nil {
			return filters{}, err
		}
		fault := &faultv3.HTTPFault{}
		switch {
		case config.MessageIs(&rbacv3.RBAC{}), config.MessageIs(&jwtv3.JwtAuthentication{}), config.MessageIs(&httpauthzv3.ExtAuthz{}):
			g, err := guardOf(f.GetName(), config)
			if err == nil && (out.faults || out.cors) {
				err = fmt.Errorf("simulation of the filter %s behind those of faults and CORS", f.GetName())
			}
			if err != nil {
				return filters{}, err
			}
			out.guards = append(out.guards, g)
		case config.MessageIs(&routerv3.Router{}):
		case config.MessageIs(&corsv3.Cors{}):
			out.cors = true
		case config.MessageIs(fault):
			if err := config.UnmarshalTo(fault); err != nil {
				return filters{}, err
			}
			if proto.Size(fault) > 0 {
				return filters{}, fmt.Errorf("simulation of the faults of a listener: %v", fault)
			}
			out.faults = true
		case config.MessageIs(&grpcwebv3.GrpcWeb{}): // it does not change where requests go
		case config.MessageIs(&dynamichttpv3.FilterConfig{}):
			out.resolves = true
		default:
			if p.passOver(f.GetName(), result) {
				out.passedOver = append(out.passedOver, f.GetName())
				continue
			}
			return filters{}, fmt.Errorf("simulation of the HTTP filter %s", f.GetName())
		}
	}
	return out, nil
}

// guardOf makes the guard of a filter that judges requests.
func guardOf(name string, packed *anypb.Any) (guard, error) {
	config, err := packed.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	switch config := config.(type) {
	case *jwtv3.JwtAuthentication:
		return newTokenGuard(name, config)
	case *httpauthzv3.ExtAuthz:
		return newAskGuard(name, config)
	}
	return newAccessGuard(name, config.(*rbacv3.RBAC))
}

// faultOf parses the fault of a route, nil for none. It fails on what a route says of other filters than
// those that are passed over.
func faultOf(route *routev3.Route, passedOver []string) (*Fault, error) {
	for name := range route.GetTypedPerFilterConfig() {
		if !slices.Contains(passedOver, name) && name != faultFilter && name != corsFilter && name != grpcWebFilter {
			return nil, fmt.Errorf("simulation of the filter %s of a route", name)
		}
	}
	config := route.GetTypedPerFilterConfig()[faultFilter]
	if config == nil {
		return nil, nil
	}
	from := &faultv3.HTTPFault{}
	if err := config.UnmarshalTo(from); err != nil {
		return nil, err
	}
	out := &Fault{}
	if d := from.GetDelay(); d.GetFixedDelay() != nil && d.GetPercentage().GetNumerator() > 0 {
		out.Delay, out.DelayPercent = d.GetFixedDelay().AsDuration(), percent(d.GetPercentage())
	}
	if a := from.GetAbort(); a.GetPercentage().GetNumerator() > 0 {
		switch e := a.GetErrorType().(type) {
		case *faultv3.FaultAbort_HttpStatus:
			out.Abort = fmt.Sprint(e.HttpStatus)
		case *faultv3.FaultAbort_GrpcStatus:
			out.Abort = fmt.Sprint("gRPC ", e.GrpcStatus)
		default:
			return nil, fmt.Errorf("simulation of the abort %T", e)
		}
		out.AbortPercent = percent(a.GetPercentage())
	}
	if *out == (Fault{}) {
		return nil, nil
	}
	return out, nil
}

func percent(p *typev3.FractionalPercent) float64 {
	of := map[typev3.FractionalPercent_DenominatorType]float64{
		typev3.FractionalPercent_HUNDRED: 1, typev3.FractionalPercent_TEN_THOUSAND: 100, typev3.FractionalPercent_MILLION: 10_000,
	}
	return float64(p.GetNumerator()) / of[p.GetDenominator()]
}
