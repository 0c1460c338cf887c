// Package upstream makes the Envoy messages of what requests are sent to: clusters and the
// endpoints in them. It keeps the rules of package envoy, and links no filters.
package upstream
