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
	// defaultRetryOn retries requests that no upstream processed, or for which gRPC
	// reports so.
	defaultRetryOn       = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
	defaultRetryAttempts = 2

	retriableStatusCodes = "retriable-status-codes"
	// hostSelectionAttempts is how often Envoy looks for another endpoint before it
	// reuses one that failed.
	hostSelectionAttempts = 5
	// previousPrioritiesUpdate is the number of attempts after which Envoy chooses
	// priorities anew.
	previousPrioritiesUpdate = 2
)

// RetryOptions describe when a request is retried. The zero value is the default: two
// retries, on other endpoints.
type RetryOptions struct {
	// Attempts is the number of retries. Nil means the default; 0 or less means none.
	Attempts *int32
	// On lists conditions and status codes, separated by commas. If it is empty, Envoy
	// retries requests that were certainly not processed.
	On string
	// PerTryTimeout is the timeout of each attempt; 0 means the request's timeout.
	PerTryTimeout time.Duration
	// Backoff is the least time between attempts; 0 means Envoy's 25 ms.
	Backoff time.Duration
	// RemoteLocalities also tries localities of a lower priority.
	RemoteLocalities bool
	// ConsistentHash says that the cluster chooses endpoints by a hash. Then retries do
	// not avoid the same endpoint.
	ConsistentHash bool
	// IgnorePreviousHosts says whether retries avoid the endpoints tried before. If not
	// nil, it overrides ConsistentHash and SameHost in this.
	IgnorePreviousHosts *bool
	// SameHost says that a retry does not look for another endpoint.
	SameHost bool
}

// policy makes the retry policy, nil for no retries.
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

// parseRetryOn separates status codes from conditions. Envoy has another field for the
// codes, and a condition that enables it.
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
