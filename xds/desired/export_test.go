package desired

// Len returns how many groups there are.
func (gs *Groups) Len() int {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return len(gs.byClass)
}
