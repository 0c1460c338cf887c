package text

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/portolan-mesh/portolan/storage/access"
)

// shownItems is how many elements of a list List shows unless it shows all.
const shownItems = 3

// List formats the elements of a list: all of them, or the first ones and how many more there
// are.
func List(list []string, all bool) string {
	if all || len(list) <= shownItems {
		return strings.Join(list, ",")
	}
	return fmt.Sprintf("%s +%d more", strings.Join(list[:shownItems], ","), len(list)-shownItems)
}

// Pairs formats a map like List, sorted by key.
func Pairs[V any](m map[string]V, all bool) string {
	list := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s=%v", key, m[key]))
	}
	return List(list, all)
}

// Age returns how long ago something was, in the largest unit; empty for the zero time.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return duration.ShortHumanDuration(max(now.Sub(then), 0))
}

// Plain returns a foreign text on one line, safe for a terminal.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// TokenIdentity returns the identity that a token gives.
func TokenIdentity(t *access.JoinToken) string {
	if t.Member != nil {
		return "store member " + t.Member.Name
	}
	return t.ServiceAccount
}

// Uses formats how often a token was used, and how often it can be.
func Uses(t *access.JoinToken) string { return fmt.Sprintf("%d/%d", t.Used, t.Uses) }

// Rule formats a rule, as in "get,list virtualservices".
func Rule(r access.Rule) string {
	text := strings.Join(r.Verbs, ",") + " " + strings.Join(r.Kinds, ",")
	if len(r.Names) > 0 {
		text += " named " + strings.Join(r.Names, ",")
	}
	if len(r.Namespaces) > 0 {
		text += " in " + strings.Join(r.Namespaces, ",")
	}
	if len(r.Hosts) > 0 {
		text += " for " + strings.Join(r.Hosts, ",")
	}
	return text
}

// ListOf formats f of each element like List.
func ListOf[T any](list []T, f func(T) string, all bool) string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = f(one)
	}
	return List(texts, all)
}

// Port formats a port, as in "80/HTTP".
func Port(n uint32, protocol string) string { return fmt.Sprintf("%d/%s", n, protocol) }

// Number formats a number; 0 is empty.
func Number(n uint32) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}
