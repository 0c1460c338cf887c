package identity

// Sources returns the number of remembered sources.
func (l *Limited) Sources() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sources.Len()
}
