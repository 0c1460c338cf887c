// Package ingressstatus has the message in which servers show the status of an Ingress.
package ingressstatus

// The imports are those of istio.io/api, so it takes protoc:
//
//	protoc -I . -I $(go list -m -f '{{.Dir}}' istio.io/api) --go_out=. --go_opt=paths=source_relative ingressstatus.proto
