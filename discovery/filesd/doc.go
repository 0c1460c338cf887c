// Package filesd is the registry of files in which an inventory stands: lists of targets
// with labels, in JSON or YAML, as the file-based discovery of Prometheus reads them.
//
//	files.Follow -> parse -> Registry.update -> Worker.Post -> Publisher.Publish
//
//	- targets: [10.0.0.1:9001, 10.0.0.2:9001]
//	  labels: {portolan_service: web, portolan_protocol: http, version: v1}
//
// A label names the service of the targets (Options.ServiceLabel). A target that a file
// lists no more is removed at once. A broken, empty or missing file keeps its last content.
package filesd
