package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

// checkKeys refuses keys of a YAML document that the parser would read as something other
// than they were written as: n, which YAML 1.1 reads as false, or 1.10, which is 1.1. A
// query parameter, header or label of that name would silently be another one.
func (c chunk) checkKeys() error {
	if !mayHaveOddKeys(c.text) {
		return nil
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(c.text, &document); err != nil {
		return nil //nolint:nilerr // the parser that counts says what is wrong
	}
	var faults []string
	var walk func(*yamlv3.Node)
	walk = func(n *yamlv3.Node) {
		for i, child := range n.Content {
			if n.Kind == yamlv3.MappingNode && i%2 == 0 {
				if read, odd := oddKey(child); odd {
					faults = append(faults, fmt.Sprintf("line %d: YAML reads the key %s as %s: put it in quotes", c.start-1+child.Line, strconv.Quote(child.Value), read))
				}
			}
			walk(child)
		}
	}
	walk(&document)
	if len(faults) == 0 {
		return nil
	}
	if len(faults) > maxFaults {
		faults = append(faults[:maxFaults], moreFaults)
	}
	return errors.New(strings.Join(faults, "; "))
}

// oddKey returns what the parser reads a key as, if that is another text than was written.
func oddKey(n *yamlv3.Node) (read string, odd bool) {
	if n.Kind != yamlv3.ScalarNode || n.Style != 0 {
		return "", false
	}
	var value any
	if err := yamlv2.Unmarshal([]byte(n.Value), &value); err != nil {
		return "", false
	}
	switch v := value.(type) {
	case bool:
		read = strconv.FormatBool(v)
	case int, int64, uint64:
		read = fmt.Sprint(v)
	case float64:
		read = strconv.FormatFloat(v, 'g', -1, 32)
	default:
		return "", false
	}
	return read, read != n.Value
}

// mayHaveOddKeys says whether a text has a word before a colon that is a boolean or a number
// for YAML. It is true for some texts without such keys, and costs little.
func mayHaveOddKeys(text []byte) bool {
	for i := 0; ; i++ {
		next := bytes.IndexByte(text[i:], ':')
		if next < 0 {
			return false
		}
		i += next
		word := bytes.TrimRight(text[:i], " \t")
		begin := bytes.LastIndexAny(word, " \t\r\n{[,?") + 1
		if word = word[begin:]; len(word) > 0 && (booleans[strings.ToLower(string(word))] || strings.IndexByte("0123456789+-.", word[0]) >= 0) {
			return true
		}
	}
}

// booleans are the words that YAML 1.1 reads as true or false.
var booleans = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true, "true": true, "false": true}
