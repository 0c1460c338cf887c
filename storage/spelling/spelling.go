// Package spelling finds the name that a misspelt word stands for: of a command, a kind, a
// field.
package spelling

import (
	"slices"
	"strings"
)

// longest is the length of the longest name that is compared letter by letter.
const longest = 64

// Similar says whether a word may stand for a name, in whatever case: it is the
// beginning of it, or differs from it by a slip or two.
func Similar(word, name string) bool {
	word, name = strings.ToLower(word), strings.ToLower(name)
	return len(word) > 1 && strings.HasPrefix(name, word) || isTypo(word, name)
}

// Nearest returns the name that a word most likely stands for, empty if none is Similar to
// it. Of equally near names it returns the first in alphabetical order.
func Nearest(word string, names []string) string {
	nearest, least := "", 0
	for _, name := range slices.Sorted(slices.Values(names)) {
		if !Similar(word, name) {
			continue
		}
		if d := distance(strings.ToLower(word), strings.ToLower(name)); nearest == "" || d < least {
			nearest, least = name, d
		}
	}
	return nearest
}

// isTypo says whether a word differs from a name by a slip or two, in long names.
func isTypo(word, name string) bool {
	most := min(2, len(name)/3)
	return len(name) <= longest && len(word) <= len(name)+most && distance(word, name) <= most
}

// distance returns how many letters must be inserted, left out, replaced, or swapped with
// the next to turn one word into another.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1) // distances from the letters of a so far to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
