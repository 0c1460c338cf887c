package envoy

import (
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// HashPolicy is the input of a consistent hash: exactly one of its fields is set.
type HashPolicy struct {
	Header, QueryParameter string
	Cookie                 *HashCookie
	SourceIP               bool
}

// HashCookie is a cookie to hash. With a TTL, Envoy sets the cookie if the request has
// none; a TTL of 0 makes a session cookie.
type HashCookie struct {
	Name, Path string
	TTL        *time.Duration
	Attributes []CookieAttribute
}

// CookieAttribute is an attribute of a cookie that Envoy sets, such as SameSite.
type CookieAttribute struct{ Name, Value string }

func (h HashPolicy) route() *routev3.RouteAction_HashPolicy {
	out := &routev3.RouteAction_HashPolicy{}
	switch {
	case h.Header != "":
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: h.Header},
		}
	case h.QueryParameter != "":
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: h.QueryParameter},
		}
	case h.Cookie != nil:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: h.Cookie.message()}
	default:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
		}
	}
	return out
}

func (c *HashCookie) message() *routev3.RouteAction_HashPolicy_Cookie {
	out := &routev3.RouteAction_HashPolicy_Cookie{Name: c.Name, Path: c.Path}
	if c.TTL != nil {
		out.Ttl = durationpb.New(*c.TTL)
	}
	for _, a := range c.Attributes {
		out.Attributes = append(out.Attributes, &routev3.RouteAction_HashPolicy_CookieAttribute{Name: a.Name, Value: a.Value})
	}
	return out
}

// sourceIPHash is the only hash for TCP.
func sourceIPHash() []*typev3.HashPolicy {
	return []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}}
}
