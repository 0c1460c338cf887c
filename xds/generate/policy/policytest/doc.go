// Package policytest has a table of AuthorizationPolicies with requests and what becomes of
// them (cases.yaml), and what judges such a table: an evaluator that follows the words of
// Istio's documentation and shares no code with the translation (evaluate.go), and a listener
// with the translated filters, for a simulation and for an Envoy (listener.go). Draw makes
// more tables.
package policytest
