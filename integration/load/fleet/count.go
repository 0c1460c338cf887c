package fleet

import "maps"

// Count is how much was received of a type.
type Count struct {
	Messages, Resources, Removed, Bytes int64
}

func (c Count) plus(o Count, sign int64) Count {
	return Count{
		c.Messages + sign*o.Messages, c.Resources + sign*o.Resources,
		c.Removed + sign*o.Removed, c.Bytes + sign*o.Bytes,
	}
}

// Counts has the counts of all proxies together, by type URL.
type Counts map[string]Count

// Since returns what came after an earlier count, without types of which nothing came.
func (c Counts) Since(earlier Counts) Counts {
	out := Counts{}
	for typeURL, count := range c {
		if d := count.plus(earlier[typeURL], -1); d != (Count{}) {
			out[typeURL] = d
		}
	}
	return out
}

// Plus returns the sum of both; c may be nil.
func (c Counts) Plus(more Counts) Counts {
	out := maps.Clone(c)
	if out == nil {
		out = Counts{}
	}
	for typeURL, count := range more {
		out[typeURL] = out[typeURL].plus(count, 1)
	}
	return out
}

// Total returns the sum of all types.
func (c Counts) Total() Count {
	var out Count
	for count := range maps.Values(c) {
		out = out.plus(count, 1)
	}
	return out
}
