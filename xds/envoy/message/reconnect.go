package message

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Envoy reconnects after a random pause: up to firstPause, doubled after each stream on which it
// got nothing. If a proxy already has everything, the server that takes over sends nothing. So the
// pauses grow even while servers are available. Envoy's default maximum of 30 s would delay a
// change by as much.
// https://github.com/envoyproxy/envoy/issues/24236
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Reconnect says when an Envoy reconnects to a server of xDS.
func Reconnect() *corev3.RetryPolicy {
	return &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{BaseInterval: Seconds(firstPause), MaxInterval: Seconds(lastPause)}}
}
