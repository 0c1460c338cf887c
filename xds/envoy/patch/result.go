package patch

// Result says what became of a patch on a resource that it matched.
type Result struct {
	Patch *Patch
	// Err is nil if the patch applied. Otherwise the patch changed nothing, and Err says why.
	Err error
}
