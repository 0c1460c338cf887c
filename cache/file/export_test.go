package file

import "time"

// Held is what a file holds: the Paths of the keys of its objects, and how many
// documents are broken.
type Held struct {
	document *document
	Paths    []string
	Broken   int
}

// Settle reads a file that held something before; nil for nothing.
func (c *Cache) Settle(before *Held, data []byte) *Held {
	old := &document{}
	if before != nil {
		old = before.document
	}
	out := &Held{document: settle("x.yaml", old, c.parse("x.yaml", data), time.Now())}
	for _, one := range out.document.claims {
		out.Paths = append(out.Paths, one.path)
	}
	out.Broken = len(out.document.problems)
	return out
}
