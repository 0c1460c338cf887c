// Package message has helpers for all Envoy messages: checking, packing, addresses, and common
// fields.
package message
