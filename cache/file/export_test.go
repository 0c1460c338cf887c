package file

import "time"

// Held is the content of a file: the Paths of the keys of its objects, and the number of
// broken documents.
type Held struct {
	document *document
	Paths    []string
	Broken   int
}

// Settle reads new data of a file. before is its previous content; nil for none.
func (c *Cache) Settle(before *Held, data []byte) *Held {
	old := &document{}
	if before != nil {
		old = before.document
	}
	out := &Held{document: keepLastGood("x.yaml", old, c.parse("x.yaml", data), time.Now())}
	for _, one := range out.document.claims {
		out.Paths = append(out.Paths, one.path)
	}
	out.Broken = len(out.document.problems)
	return out
}

// ListProblems returns how many problems there are, as if the directory had just changed.
func (c *Cache) ListProblems() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(problemTexts(c.listProblems()))
}
