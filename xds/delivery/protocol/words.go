package protocol

import "strings"

// maxWords bounds how much of the message of a NACK is searched for names, in bytes.
const maxWords = 16 << 10

// mentioned returns the changes whose names the message of a NACK mentions.
func mentioned(words string, changes []change) (out []change) {
	words = words[:min(len(words), maxWords)]
	for _, c := range changes {
		if mentions(words, c.Key) {
			out = append(out, c)
		}
	}
	return out
}

// mentions says whether words contain a name as a whole, and not only within another
// name.
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

// nameBegins says whether a name goes on at the beginning of s. A full stop belongs to a
// name only if the name goes on after it.
func nameBegins(s string) bool {
	s = strings.TrimPrefix(s, ".")
	return s != "" && inName(s[0])
}

func inName(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("_-|/", c) >= 0
}
