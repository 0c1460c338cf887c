// Package filesd is the registry of inventory files: lists of targets with labels, in JSON or
// YAML, in the format of Prometheus' file-based discovery.
//
//	files.Follow -> parse -> Registry.update -> Worker.Post -> Publisher.Publish
//
//	- targets: [10.0.0.1:9001, 10.0.0.2:9001]
//	  labels: {portolan_service: web, portolan_protocol: http, version: v1}
//
// A label names the service of the targets (Options.ServiceLabel). A target that a file no
// longer lists is removed at once. A broken, empty or missing file keeps its last content.
package filesd
