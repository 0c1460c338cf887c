package filesd

import "github.com/portolan-mesh/portolan/discovery"

// RowsOf returns the rows of a file with this content.
func RowsOf(data []byte) (out []discovery.Row) {
	o := Options{Files: []string{"x"}}
	_ = o.complete()
	for k, targets := range grouped([]*listed{o.parse("x", data)}) {
		out = append(out, rowOf(k, targets))
	}
	return out
}
