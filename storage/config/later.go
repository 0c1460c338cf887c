package config

import (
	"fmt"

	"github.com/hashicorp/go-multierror"

	"github.com/portolan-mesh/portolan/storage/cores"
)

// DecodeLater is Decode, but leaves specs of messages undecoded, for ReadSpecs. Whoever only sends
// the objects elsewhere (Document.JSON) needs no more.
func DecodeLater(source string, data []byte, resolve Resolver) ([]Document, error) {
	d := decoder{source: source, resolve: resolve, later: true}
	return d.decode(data)
}

// ReadSpecs decodes the specs that DecodeLater has left. Documents and error are those of Decode.
func ReadSpecs(documents []Document) ([]Document, error) {
	read := make([]*object, len(documents))
	cores.Each(len(documents), func(i int) { read[i] = documents[i].readSpec() })
	var sound []Document
	var faults *multierror.Error
	for from := 0; from < len(documents); {
		d := decoder{source: documents[from].Source}
		for ; from < len(documents) && documents[from].Source == d.source; from++ {
			at := documents[from]
			if d.full() {
				at.Config = nil
				d.add(at.Fault("", moreFaults))
				break
			}
			d.object(at, read[from])
		}
		for from < len(documents) && documents[from].Source == d.source {
			from++
		}
		sound = append(sound, d.documents...)
		faults = multierror.Append(faults, d.errors.WrappedErrors()...)
	}
	return sound, faults.ErrorOrNil()
}

func (d Document) readSpec() *object {
	o := &object{config: d.Config, spec: d.spec, kind: d.Config.Kind, namespace: d.Config.Namespace, objectName: d.Config.Name}
	if d.unread != nil {
		d.Config.Spec = d.unread.decode(o, d.spec)
		o.keepText(d.unread, d.spec)
	}
	return o
}

// JSON writes the object as ToJSON does, its spec as the document has it. Nothing else may have
// changed the spec since.
func (d Document) JSON() ([]byte, error) {
	if d.spec == nil || d.Config.Status != nil {
		return ToJSON(d.Config, "")
	}
	text, err := encoded(document{APIVersion: d.Config.APIVersion(), Kind: d.Config.Kind, Metadata: metadataOf(d.Config)})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.Config.Key(), err)
	}
	out := make([]byte, 0, len(text)+len(d.spec)+len(`,"spec":`))
	out = append(append(out, text[:len(text)-1]...), `,"spec":`...)
	return append(append(out, d.spec...), '}'), nil
}
