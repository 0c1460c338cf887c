// Package message has helpers for all Envoy messages: checking, packing, and common
// fields.
package message
