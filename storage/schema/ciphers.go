package schema

import "slices"

// CipherSuites sorts names of cipher suites into those that proxies accept (KnownCipher),
// each once and in order, and the others, which proxies do not get.
func CipherSuites(names []string) (known, unknown []string) { return sorted(names, KnownCipher) }

// Curves is like CipherSuites, for the curves of the key exchange.
func Curves(names []string) (known, unknown []string) {
	return sorted(names, func(name string) bool {
		return slices.Contains([]string{"X25519", "P-256", "P-384", "P-521", "X25519MLKEM768"}, name)
	})
}

func sorted(names []string, takes func(string) bool) (known, unknown []string) {
	for _, name := range names {
		switch {
		case !takes(name):
			unknown = append(unknown, name)
		case !slices.Contains(known, name):
			known = append(known, name)
		}
	}
	return known, unknown
}
