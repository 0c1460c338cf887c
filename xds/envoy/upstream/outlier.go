package upstream

import (
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// OutlierDetection makes a cluster eject endpoints that fail several times in a row. Nil
// or 0 means Envoy's default: it ejects an endpoint after 5 errors, for 30 s the first
// time, checks every 10 s, and ejects at most a tenth of the endpoints at once. Success
// rates do not eject endpoints.
type OutlierDetection struct {
	// Consecutive5xx is how many errors of any kind in a row eject an endpoint, and
	// ConsecutiveGateway how many of 502, 503 and 504. 0 means never, and so does a nil
	// ConsecutiveGateway.
	Consecutive5xx, ConsecutiveGateway *uint32
	// SplitLocalOrigin counts connection failures apart from error responses.
	// ConsecutiveLocalOrigin failures in a row eject the endpoint.
	SplitLocalOrigin           bool
	ConsecutiveLocalOrigin     uint32
	Interval, BaseEjectionTime time.Duration
	MaxEjectionPercent         uint32
	// ErrorCodes are the HTTP statuses that count as errors; empty means 500 to 599.
	ErrorCodes []uint32
}

func (o *OutlierDetection) message() *clusterv3.OutlierDetection {
	if o == nil {
		return nil
	}
	out := &clusterv3.OutlierDetection{
		EnforcingSuccessRate: wrapperspb.UInt32(0),
		Interval:             message.Seconds(o.Interval),
		BaseEjectionTime:     message.Seconds(o.BaseEjectionTime),
		MaxEjectionPercent:   message.Count(o.MaxEjectionPercent),
	}
	out.Consecutive_5Xx, out.EnforcingConsecutive_5Xx = enforced(o.Consecutive5xx)
	out.ConsecutiveGatewayFailure, out.EnforcingConsecutiveGatewayFailure = enforced(o.ConsecutiveGateway)
	if o.SplitLocalOrigin {
		out.SplitExternalLocalOriginErrors = true
		out.EnforcingLocalOriginSuccessRate = wrapperspb.UInt32(0)
		if n := o.ConsecutiveLocalOrigin; n > 0 {
			out.ConsecutiveLocalOriginFailure, out.EnforcingConsecutiveLocalOriginFailure = enforced(&n)
		}
	}
	return out
}

// enforced returns the number of errors, and the percentage of cases in which it ejects.
func enforced(errors *uint32) (limit, percent *wrapperspb.UInt32Value) {
	if errors == nil {
		return nil, nil
	}
	if *errors == 0 {
		return wrapperspb.UInt32(0), wrapperspb.UInt32(0)
	}
	return wrapperspb.UInt32(*errors), wrapperspb.UInt32(100)
}

// errorMatcher matches the responses that count as errors, nil for Envoy's default.
func (o *OutlierDetection) errorMatcher() *httpv3.HttpProtocolOptions_OutlierDetection {
	if o == nil || len(o.ErrorCodes) == 0 {
		return nil
	}
	rules := make([]*matcherv3.MatchPredicate, len(o.ErrorCodes))
	for i, code := range o.ErrorCodes {
		status := &routev3.HeaderMatcher{Name: ":status", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
			StringMatch: &typev3.StringMatcher{MatchPattern: &typev3.StringMatcher_Exact{Exact: strconv.Itoa(int(code))}},
		}}
		rules[i] = &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_HttpResponseHeadersMatch{
			HttpResponseHeadersMatch: &matcherv3.HttpHeadersMatch{Headers: []*routev3.HeaderMatcher{status}},
		}}
	}
	if len(rules) == 1 {
		return &httpv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: rules[0]}
	}
	return &httpv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: &matcherv3.MatchPredicate{
		Rule: &matcherv3.MatchPredicate_OrMatch{OrMatch: &matcherv3.MatchPredicate_MatchSet{Rules: rules}},
	}}
}
