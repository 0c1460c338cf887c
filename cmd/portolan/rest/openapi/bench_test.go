package openapi

import (
	"testing"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// BenchmarkDefinitions derives the types of all kinds.
func BenchmarkDefinitions(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if len(Definitions(schema.Pilot())) == 0 {
			b.Fatal("none")
		}
	}
}

// BenchmarkDocuments makes all documents of version 3 for the index, or that of version 2,
// of a new server, and reports their size.
func BenchmarkDocuments(b *testing.B) {
	const asProtobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	for name, asked := range map[string][]string{
		"v3":          {"/openapi/v3"},
		"v2":          {"/openapi/v2"},
		"v2-protobuf": {"/openapi/v2", "Accept", asProtobuf},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				_, body := get(b, serve(b), asked[0], asked[1:]...)
				size = len(body)
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
