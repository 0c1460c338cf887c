// Package names has the names of generated resources, of one form with Istio's to the byte:
// EnvoyFilters, dashboards and access logs use them.
package names
