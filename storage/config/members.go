package config

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Members iterates over the keys and the values of a mapping in valid JSON, in the order of the
// text. Values are parts of the text, not copies. Other JSON has no members.
func Members(text json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for rest, ok := inside(text, '{'); ok; {
			rest = rest[len(blanks(rest)):]
			if len(rest) == 0 || rest[0] != '"' {
				return
			}
			n := valueLength(rest)
			key := keyText(rest[:n])
			rest = rest[n:]
			rest = rest[bytes.IndexByte(rest, ':')+1:]
			rest = rest[len(blanks(rest)):]
			n = valueLength(rest)
			if !yield(key, rest[:n]) {
				return
			}
			rest, ok = behindComma(rest[n:])
		}
	}
}

// Elements returns the elements of a list in valid JSON: parts of the text, not copies. It returns
// false for other JSON.
func Elements(text json.RawMessage) (elements []json.RawMessage, isList bool) {
	rest, isList := inside(text, '[')
	for ok := isList; ok; {
		rest = rest[len(blanks(rest)):]
		n := valueLength(rest)
		if n == 0 {
			break // the list is empty
		}
		elements = append(elements, rest[:n:n])
		rest, ok = behindComma(rest[n:])
	}
	return elements, isList
}

// inside returns the text behind the opening bracket of a mapping or a list; false if there is
// none.
func inside(text []byte, bracket byte) (rest []byte, ok bool) {
	text = text[len(blanks(text)):]
	if len(text) == 0 || text[0] != bracket {
		return nil, false
	}
	return text[1:], true
}

// behindComma returns the text behind the comma that follows a value; false if none does.
func behindComma(text []byte) (rest []byte, ok bool) { return inside(text, ',') }

// blanks returns the blanks at the beginning of a text.
func blanks(text []byte) []byte {
	for i, c := range text {
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return text[:i]
		}
	}
	return text
}

// valueLength returns the length of the value at the beginning of a text, 0 if none is there.
func valueLength(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(text))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // a number, true, false or null ends
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// keyText returns the text of a key in quotes.
func keyText(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 && len(quoted) > 1 {
		return string(quoted[1 : len(quoted)-1])
	}
	var key string
	_ = json.Unmarshal(quoted, &key) // the JSON is valid
	return key
}
