package envoy

import (
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// CORS is a route's CORS policy, for browser requests from pages of other origins. It
// applies only to forwarded requests.
type CORS struct {
	// Origins match the allowed origins. Exact "*" matches all.
	Origins []StringMatch
	// Methods, Headers and ExposeHeaders are the methods and headers that pages may send,
	// and the headers that they may read.
	Methods, Headers, ExposeHeaders []string
	// MaxAge is how long browsers cache an answer, in whole seconds. Nil leaves it to
	// them.
	MaxAge *time.Duration
	// Credentials says whether pages may send credentials; nil means no.
	Credentials *bool
	// AnswerUnmatched answers preflight requests of origins that are not allowed;
	// otherwise they are forwarded.
	AnswerUnmatched bool
}

// CORSFilter makes the filter that applies routes' CORS policies. It has no policy of its
// own.
func CORSFilter() *hcmv3.HttpFilter { return httpFilter(CORSName, &corsv3.Cors{}) }

func (c *CORS) policy() *corsv3.CorsPolicy {
	out := &corsv3.CorsPolicy{
		FilterEnabled:                &corev3.RuntimeFractionalPercent{DefaultValue: fractionalPercent(100)},
		AllowMethods:                 strings.Join(c.Methods, ","),
		AllowHeaders:                 strings.Join(c.Headers, ","),
		ExposeHeaders:                strings.Join(c.ExposeHeaders, ","),
		ForwardNotMatchingPreflights: wrapperspb.Bool(!c.AnswerUnmatched),
	}
	for _, o := range c.Origins {
		out.AllowOriginStringMatch = append(out.AllowOriginStringMatch, o.matcher())
	}
	if c.MaxAge != nil {
		out.MaxAge = strconv.FormatInt(int64(*c.MaxAge/time.Second), 10)
	}
	if c.Credentials != nil {
		out.AllowCredentials = wrapperspb.Bool(*c.Credentials)
	}
	return out
}
