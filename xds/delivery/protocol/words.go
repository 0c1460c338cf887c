package protocol

import "strings"

// maxWords bounds the words that are looked through.
const maxWords = 16 << 10

// mentioned are the changes whose names are in some words.
func mentioned(words string, changes []change) (out []change) {
	words = words[:min(len(words), maxWords)]
	for _, c := range changes {
		if mentions(words, c.Key) {
			out = append(out, c)
		}
	}
	return out
}

// mentions says whether words have a name in them, and not only as a part of
// another.
func mentions(words, name string) bool {
	for rest := words; name != ""; {
		at := strings.Index(rest, name)
		if at < 0 {
			return false
		}
		before, after := rest[:at], rest[at+len(name):]
		if !nameEnds(before) && !nameBegins(after) {
			return true
		}
		rest = after
	}
	return false
}

func nameEnds(s string) bool { return s != "" && inName(s[len(s)-1]) }

// nameBegins takes a full stop for a part of a name only where one goes on.
func nameBegins(s string) bool {
	s = strings.TrimPrefix(s, ".")
	return s != "" && inName(s[0])
}

func inName(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("_-|/", c) >= 0
}
