package verdict

import (
	"fmt"
	"slices"
	"strings"
)

// Names is a set of names for a message. The zero Names is empty.
type Names struct {
	all   map[string]struct{}
	first []string
}

// Add adds a name. One that is there counts once.
func (n *Names) Add(name string) {
	const told = 3
	if n.all == nil {
		n.all = map[string]struct{}{}
	}
	n.all[name] = struct{}{}
	if len(n.first) < told && !slices.Contains(n.first, name) {
		n.first = append(n.first, name)
	}
}

// Count returns how many names there are.
func (n *Names) Count() int { return len(n.all) }

// First tells the names that were added first.
func (n *Names) First() string { return strings.Join(n.first, ", ") }

// String is First, and says how many more there are.
func (n *Names) String() string {
	if more := n.Count() - len(n.first); more > 0 {
		return fmt.Sprintf("%s and %d more", n.First(), more)
	}
	return n.First()
}
