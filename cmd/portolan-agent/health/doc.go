// Package health finds out whether the workload of a machine is healthy, by the probe that the
// servers of the mesh name, and reports each change.
//
//	Prober.Follow   takes the probe, as the relay hands it on
//	Prober.Run      checks the workload and its proxy, and reports
//	Checker.Check   is one check: HTTP, TCP, a program, or gRPC
//	judge           turns results into a state, by the thresholds
//
// What counts as healthy is what Kubernetes and Istio's agent count
// (Istio: pkg/istio-agent/health).
package health
