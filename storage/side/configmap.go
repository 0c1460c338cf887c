package side

// ConfigMap is the content of a ConfigMap.
type ConfigMap struct {
	// Immutable says that the data never changes again.
	Immutable *bool `json:"immutable,omitempty"`
	// Data are the entries that are text, and BinaryData the others.
	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
}

// TopLevel implements config.TopLevel.
func (*ConfigMap) TopLevel() {}

// Size returns the bytes of all entries with their names.
func (m *ConfigMap) Size() int {
	size := 0
	for name, text := range m.Data {
		size += len(name) + len(text)
	}
	for name, text := range m.BinaryData {
		size += len(name) + len(text)
	}
	return size
}
