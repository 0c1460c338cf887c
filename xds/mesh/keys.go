package mesh

import (
	"cmp"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// keys holds the fetched keys of issuers, by namespace and name of their KeySet. When and why a
// fetch failed is not in a row, so it concerns no proxy.
type keys struct{ tableOf[string] }

var keyRows = keys{tableOf[string]{Keys}}

func (t keys) follow(from, to *PushContext) {
	eachObject(from, to, keySetPath, func(c pmap.Change[*config.Config]) {
		object, text := cmp.Or(c.New, c.Old), ""
		if c.HasNew {
			text = c.New.Spec.(*keyset.Fetched).Keys
		}
		if key := object.Namespace + "/" + object.Name; t.rowsOf(to).Value(key) != text {
			t.put(to, key, text, text != "")
		}
	})
}

// Keys returns the JSON Web Key Set that was fetched from a source, empty if none ever was.
func (v *View) Keys(source keyset.Source) string {
	return v.ask(Keys, v.RootNamespace()+"/"+source.Name(), "").(string)
}
