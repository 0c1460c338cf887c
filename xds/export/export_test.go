package export

// Held says whether resources are held.
func (e *Export) Held() bool { return e.newest.Load() != nil }
