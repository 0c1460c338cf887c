// Package names makes the names of generated resources. They equal Istio's to the byte,
// since EnvoyFilters, dashboards and access logs use them.
package names
