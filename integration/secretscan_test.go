package integration

import (
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// scanner finds private keys and tokens in a text, in all forms in which they may occur. It
// reads a text once, however many keys there are.
type scanner struct {
	begin [1 << 16]bool            // by the first two bytes of a pattern
	at    map[[8]byte][]keyPattern // by their first eight bytes
}

// keyPattern is one form of a key.
type keyPattern struct{ what, text string }

// add adds a key to find.
func (s *scanner) add(t *testing.T, name string, of secrettest.Pair) {
	t.Helper()
	s.addForms(name, formsOf(t, of))
}

// addText adds a token or a password to find, of at least twelve bytes: as it is, in hex, and
// in base64 at any offset.
func (s *scanner) addText(name, text string) {
	forms := map[string][]string{"raw": {text}, "hex": {hex.EncodeToString([]byte(text))}}
	for offset := range 3 {
		padded := append(make([]byte, offset), text...)
		for _, encoded := range []string{base64.StdEncoding.EncodeToString(padded), base64.RawURLEncoding.EncodeToString(padded)} {
			forms["base64"] = append(forms["base64"], encoded[4:len(encoded)-4])
		}
	}
	s.addForms(name, forms)
}

// addForms adds forms of a secret to find.
func (s *scanner) addForms(name string, forms map[string][]string) {
	for form, texts := range forms {
		for _, text := range texts {
			head := [8]byte([]byte(text))
			if s.at == nil {
				s.at = map[[8]byte][]keyPattern{}
			}
			s.begin[uint16(head[0])|uint16(head[1])<<8] = true
			s.at[head] = append(s.at[head], keyPattern{name + ", " + form, text})
		}
	}
}

// scan returns which keys a text contains, and in which forms.
func (s *scanner) scan(text []byte) (found []string) {
	for i := 0; i+8 <= len(text); i++ {
		if !s.begin[uint16(text[i])|uint16(text[i+1])<<8] {
			continue
		}
		for _, p := range s.at[[8]byte(text[i:])] {
			if rest := text[i:]; len(rest) >= len(p.text) && string(rest[:len(p.text)]) == p.text && !slices.Contains(found, p.what) {
				found = append(found, p.what)
			}
		}
	}
	return found
}

// formsOf returns the forms of a private key. Its number and its DER occur as they are, in hex,
// and in base64 at any offset. Its PEM lines occur as they are, and in base64.
func formsOf(t *testing.T, of secrettest.Pair) map[string][]string {
	t.Helper()
	key, ok := of.Private.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("%T", of.Private)
	}
	number, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(of.Key)), "\n")
	out := map[string][]string{
		"raw": {string(number)}, "hex": {hex.EncodeToString(number), strings.ToUpper(hex.EncodeToString(number))},
		"PEM": lines[2 : len(lines)-1], // the first lines only name the form of the key
	}
	for what, text := range map[string]string{"base64": string(number), "base64 of PEM": strings.Join(lines[2:len(lines)-1], "\n")} {
		for offset := range 3 {
			encoded := base64.StdEncoding.EncodeToString(append(make([]byte, offset), text...))
			out[what] = append(out[what], encoded[4:min(len(encoded)-4, 44)])
		}
	}
	return out
}

// TestTheScannerFindsKeys in each form, anywhere in a text, and only where they are.
func TestTheScannerFindsKeys(t *testing.T) {
	t.Parallel()
	here, absent := secrettest.New(t, time.Hour, "here.example"), secrettest.New(t, time.Hour, "absent.example")
	var s scanner
	s.add(t, "here", here)
	s.add(t, "absent", absent)
	document, err := json.Marshal(map[string][]byte{"tls.key": here.Key})
	if err != nil {
		t.Fatal(err)
	}
	key := here.Private.(*ecdsa.PrivateKey)
	number, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":              {"", ""},
		"something else":       {strings.Repeat("portolan ", 1000), ""},
		"a file":               {"x\n" + string(here.Key), "PEM"},
		"an escaped file":      {fmt.Sprintf("%q", here.Key), "PEM"},
		"a document":           {string(document), "base64 of PEM"},
		"the end of a text":    {"xyz" + string(number), "raw"},
		"a number in a list":   {fmt.Sprintf("[%x]", number), "hex"},
		"a number in capitals": {fmt.Sprintf("[%X]", number), "hex"},
		"base64":               {base64.StdEncoding.EncodeToString(append([]byte("12"), number...)), "base64"},
	} {
		found := s.scan([]byte(c.text))
		if c.want == "" && len(found) > 0 || c.want != "" && !slices.Contains(found, "here, "+c.want) {
			t.Errorf("%s: %q", name, found)
		}
		if slices.ContainsFunc(found, func(what string) bool { return strings.HasPrefix(what, "absent") }) {
			t.Errorf("%s: %q", name, found)
		}
	}
}
