package schema

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"
)

// retryConditions are the conditions that Envoy knows.
func retryConditions() []string {
	return []string{
		"5xx", "gateway-error", "reset", "reset-before-request", "connect-failure", "envoy-ratelimited",
		"retriable-4xx", "refused-stream", "retriable-status-codes", "retriable-headers", "http3-post-connect-failure",
		"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable",
	}
}

// backoff checks the pause before a retry. Proxies count it in whole milliseconds.
func (c checker) backoff(d *durationpb.Duration) {
	if pause := d.AsDuration(); d.IsValid() && pause > 0 && pause <= maxDuration && pause%time.Millisecond != 0 {
		c.warn("is %s, and proxies count whole milliseconds, one at least", pause)
		return
	}
	c.duration(d)
}

// checkTryTime warns of a try that may take longer than the request with all its tries.
func checkTryTime(c checker, route *networking.HTTPRoute) {
	try, all := route.GetRetries().GetPerTryTimeout(), route.GetTimeout()
	if try.IsValid() && all.IsValid() && all.AsDuration() > 0 && try.AsDuration() > all.AsDuration() {
		c.warn("is %s and has no effect: the timeout of the route ends the request after %s, whatever is left of its tries", try.AsDuration(), all.AsDuration())
	}
}

func checkRetries(c checker, r *networking.HTTPRetry) {
	if r == nil {
		return
	}
	c.at("attempts").notNegative(r.Attempts)
	switch without := []string{"backoff", "retryIgnorePreviousHosts"}; {
	case r.Attempts != 0:
	case anySet(r, without...):
		c.at("attempts").fail("is 0, which turns retries off: leave the other fields out")
	case anySet(r):
		c.at("attempts").warn("is 0, which turns retries off: the other fields have no effect")
	}
	c.at("perTryTimeout").duration(r.PerTryTimeout)
	c.at("backoff").backoff(r.Backoff)
	if r.RetryOn == "" {
		return
	}
	for condition := range strings.SplitSeq(r.RetryOn, ",") {
		condition = strings.TrimSpace(condition)
		if status, err := strconv.Atoi(condition); err == nil {
			if status < 100 || status > 599 {
				c.at("retryOn").fail("%d is not an HTTP status", status)
			}
		} else if !slices.Contains(retryConditions(), condition) {
			c.at("retryOn").fail("unknown condition %q: use statuses and %s", condition, strings.Join(retryConditions(), ", "))
		}
	}
}
