package envoy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

const (
	// defaultRetryOn retries a request that no upstream processed, or that gRPC reports
	// as such.
	defaultRetryOn       = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
	defaultRetryAttempts = 2

	retriableStatusCodes = "retriable-status-codes"
	// hostSelectionAttempts is how often Envoy looks for another endpoint before it
	// takes one again that has failed.
	hostSelectionAttempts = 5
	// previousPrioritiesUpdate is after how many tries Envoy chooses priorities anew.
	previousPrioritiesUpdate = 2
)

// RetryOptions describe when a request is tried again. The zero value is the
// default: two further attempts, on other endpoints.
type RetryOptions struct {
	// Attempts beyond the first; nil is the default, 0 or less none.
	Attempts *int32
	// On lists conditions and status codes with commas between them. If it is empty,
	// Envoy retries requests that were certainly not processed.
	On string
	// PerTryTimeout is the timeout of a try; 0 is the timeout of the request.
	PerTryTimeout time.Duration
	// Backoff is the least time between attempts, Envoy's 25 ms where it is 0.
	Backoff time.Duration
	// RemoteLocalities tries localities of a lower priority too.
	RemoteLocalities bool
	// ConsistentHash says that the cluster chooses its endpoint by a hash, which
	// a further attempt then does not avoid.
	ConsistentHash bool
	// IgnorePreviousHosts outranks ConsistentHash: whether a further attempt
	// avoids the endpoints tried before.
	IgnorePreviousHosts *bool
	// SameHost says that no other endpoint is looked for.
	SameHost bool
}

// policy makes a retry policy, nil where there are no further attempts.
func (o *RetryOptions) policy() *routev3.RetryPolicy {
	if o == nil {
		return nil
	}
	attempts := int32(defaultRetryAttempts)
	if o.Attempts != nil {
		attempts = *o.Attempts
	}
	if attempts <= 0 {
		return nil
	}
	out := &routev3.RetryPolicy{
		NumRetries:                    wrapperspb.UInt32(uint32(attempts)),
		RetryOn:                       defaultRetryOn,
		HostSelectionRetryMaxAttempts: hostSelectionAttempts,
		PerTryTimeout:                 message.Seconds(o.PerTryTimeout),
	}
	if o.SameHost {
		out.HostSelectionRetryMaxAttempts = 0
	}
	if o.On != "" {
		out.RetryOn, out.RetriableStatusCodes = parseRetryOn(o.On)
	}
	if o.Backoff > 0 {
		out.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: message.Seconds(o.Backoff)}
	}
	if o.RemoteLocalities {
		out.RetryPriority = &routev3.RetryPolicy_RetryPriority{
			Name: "envoy.retry_priorities.previous_priorities",
			ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
				TypedConfig: message.Pack(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: previousPrioritiesUpdate}),
			},
		}
	}
	avoidPrevious := !o.ConsistentHash && !o.SameHost
	if o.IgnorePreviousHosts != nil {
		avoidPrevious = *o.IgnorePreviousHosts
	}
	if avoidPrevious {
		out.RetryHostPredicate = []*routev3.RetryPolicy_RetryHostPredicate{{
			Name: "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{
				TypedConfig: message.Pack(&previoushostsv3.PreviousHostsPredicate{}),
			},
		}}
	}
	return out
}

// parseRetryOn parts the conditions from the status codes, for which Envoy has
// a field of their own and a condition that turns it on.
func parseRetryOn(on string) (conditions string, codes []uint32) {
	var tokens []string
	for token := range strings.SplitSeq(on, ",") {
		token = strings.TrimSpace(token)
		if token == "" {
			continue
		}
		if code, err := strconv.ParseUint(token, 10, 32); err == nil && code >= 100 && code <= 599 {
			codes = append(codes, uint32(code))
			continue
		}
		tokens = append(tokens, token)
	}
	if len(codes) > 0 && !slices.Contains(tokens, retriableStatusCodes) {
		tokens = append(tokens, retriableStatusCodes)
	}
	return strings.Join(tokens, ","), codes
}
