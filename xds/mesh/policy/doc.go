// Package policy decides which policies about requests are for a workload. It knows
// AuthorizationPolicies and RequestAuthentications, and neither the mesh nor Envoy.
package policy
