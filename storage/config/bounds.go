package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Limits of what a text may cost to read. They are far above the needs of a mesh, and
// bound the memory that a small text can take.
const (
	// maxDepth bounds how deep the mappings and lists of an object are nested.
	maxDepth = 100
	// MaxValues bounds the keys, scalars, mappings and lists of one text.
	MaxValues = 2 << 20
	// maxExpanded bounds the bytes of one YAML document as JSON, where each alias
	// stands for a copy of its anchor.
	maxExpanded = 64 << 20
	// maxFaults bounds the reported faults of one text.
	maxFaults = 100
	// maxShown bounds how much of a value or a name an error shows.
	maxShown = 60
)

const moreFaults = "there are more faults: mend these first"

// CountValues returns an upper bound of the values in a YAML or JSON text. It counts the
// characters that can begin a value, also within strings.
func CountValues(data []byte) int {
	n := 1
	for i, c := range data {
		switch c {
		case ',', ':', '[', '{', '?':
			n++
		case '-': // of a list item or a document marker
			if i+1 == len(data) || data[i+1] <= ' ' {
				n++
			}
		}
	}
	return n
}

func checkValues(data []byte) error {
	if n := CountValues(data); n > MaxValues {
		return fmt.Errorf("the text holds some %d values, and %d are the most: divide it", n, MaxValues)
	}
	return nil
}

// nesting returns how deep mappings and lists are nested in a JSON text.
func nesting(data []byte) int {
	deepest, depth, inText := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// tooDeep says whether valid JSON is nested deeper than maxDepth, and if so reports the
// field that leads there.
func (o *object) tooDeep(data []byte) bool {
	depth := nesting(data)
	if depth <= maxDepth {
		return false
	}
	tokens := json.NewDecoder(bytes.NewReader(data))
	tokens.UseNumber()
	var path []step
	for len(path) <= maxDepth {
		token, err := tokens.Token()
		if err != nil {
			break
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			path = append(path, step{list: token == json.Delim('[')})
		case json.Delim('}'), json.Delim(']'):
			path = path[:len(path)-1]
			advance(path)
		default:
			if in := len(path) - 1; in >= 0 && !path[in].list && !path[in].value {
				path[in].key, path[in].value = fmt.Sprint(token), true
			} else {
				advance(path)
			}
		}
	}
	o.refuse(pathText(path), "is nested %d deep, and %d is the most", depth, maxDepth)
	return true
}

// step is a place in one mapping or list of a text.
type step struct {
	list  bool
	index int    // of the list
	key   string // of the mapping, the last that was read
	value bool   // whether the value of key comes next
}

// advance moves the last step past the value that was read.
func advance(path []step) {
	if len(path) == 0 {
		return
	}
	last := &path[len(path)-1]
	last.value = false
	last.index++
}

// pathText returns the beginning of a path as text.
func pathText(path []step) string {
	const limit = 8
	var b strings.Builder
	for i, s := range path {
		switch {
		case i == limit:
			b.WriteString("...")
			return b.String()
		case s.list:
			fmt.Fprintf(&b, "[%d]", s.index)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(short(s.key))
		}
	}
	return b.String()
}

// short shortens text for an error.
func short(s string) string {
	n := 0
	for i := range s {
		if n++; n > maxShown {
			return s[:i] + "..."
		}
	}
	return s
}

// checkAliases bounds the size of a YAML document with its aliases expanded. It
// does not expand them.
func checkAliases(data []byte) error {
	if bytes.IndexByte(data, '&') < 0 || bytes.IndexByte(data, '*') < 0 {
		return nil
	}
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(data, &root); err != nil {
		return yamlError(err)
	}
	e := expansion{sizes: map[*yamlv3.Node]extent{}}
	whole, err := e.extent(&root)
	switch {
	case err != nil:
		return err
	case whole.values > MaxValues:
		return fmt.Errorf("its aliases stand for %s values, and %d are the most: write less through aliases", roughly(whole.values), MaxValues)
	case whole.bytes > maxExpanded:
		return fmt.Errorf("its aliases stand for %s bytes, and %d are the most: write less through aliases", roughly(whole.bytes), maxExpanded)
	}
	return nil
}

// extent is how large a node is as JSON.
type extent struct{ values, bytes int64 }

// enough stands for itself and all larger numbers.
const enough = 1 << 40

func roughly(n int64) string {
	if n >= enough {
		return fmt.Sprintf("more than %d", int64(enough))
	}
	return fmt.Sprint(n)
}

func (e extent) plus(f extent) extent {
	return extent{min(e.values+f.values, enough), min(e.bytes+f.bytes, enough)}
}

// expansion measures nodes, each once.
type expansion struct {
	sizes map[*yamlv3.Node]extent // of nodes with anchors; zero while a node is being measured
}

func (e *expansion) extent(n *yamlv3.Node) (extent, error) {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if n.Anchor != "" {
		if size, ok := e.sizes[n]; ok {
			if size.values == 0 {
				return size, fmt.Errorf("anchor %q holds an alias of itself", short(n.Anchor))
			}
			return size, nil
		}
		e.sizes[n] = extent{}
	}
	size := extent{1, int64(len(n.Value)) + 2}
	for i := range len(n.Value) {
		switch c := n.Value[i]; {
		case c < ' ' || c == '<' || c == '>' || c == '&':
			size.bytes += 5
		case c == '"' || c == '\\':
			size.bytes++
		}
	}
	for _, child := range n.Content {
		inner, err := e.extent(child)
		if err != nil {
			return size, err
		}
		inner.bytes++
		size = size.plus(inner)
	}
	if n.Anchor != "" {
		e.sizes[n] = size
	}
	return size, nil
}
