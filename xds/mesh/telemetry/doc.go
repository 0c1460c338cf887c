// Package telemetry is the arithmetic of Telemetries: which sections of several count for a
// proxy, and what they make together. It does not know the mesh. (Istio: pilot/pkg/model/telemetry.go.)
package telemetry
