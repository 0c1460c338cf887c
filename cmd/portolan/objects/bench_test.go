package objects

import (
	"bytes"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// mesh returns the YAML of the reference mesh of 5,000 services, which has 10,000 objects.
func mesh(b *testing.B) []byte {
	b.Helper()
	var text bytes.Buffer
	for _, object := range (refmesh.Mesh{Services: 5000}).Objects() {
		document, err := config.ToYAML(object)
		if err != nil {
			b.Fatal(err)
		}
		text.WriteString("---\n")
		text.Write(document)
	}
	return text.Bytes()
}

// BenchmarkApplyOf10000 measures an apply of 10,000 new objects: command line, API and a
// store in memory.
func BenchmarkApplyOf10000(b *testing.B) {
	text := string(mesh(b))
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		a := line.StartAPI(b)
		b.StartTimer()
		a.Must(b, text, "apply", "-f", "-")
		b.StopTimer()
		a.HTTP.CloseIdleConnections()
		b.StartTimer()
	}
}

// BenchmarkManifestOf10000 measures the command line's part: from YAML to the operations of
// the request.
func BenchmarkManifestOf10000(b *testing.B) {
	text := mesh(b)
	b.ReportAllocs()
	for b.Loop() {
		documents, err := config.Decode("", text, schema.Pilot().Type)
		if err != nil {
			b.Fatal(err)
		}
		m := &manifest{schemas: schema.Pilot(), documents: documents}
		m.validate()
		if err := m.err("applied"); err != nil {
			b.Fatal(err)
		}
		if _, err := m.operations(batch.Apply); err != nil {
			b.Fatal(err)
		}
	}
}
