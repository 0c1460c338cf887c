package export

// Held reports whether the Export holds resources.
func (e *Export) Held() bool { return e.newest.Load() != nil }
