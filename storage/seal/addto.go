package seal

import "bytes"

// AddTo adds keys, as text, to a file of keys.
func AddTo(file string, text []byte) error {
	more, err := Parse(text)
	if err != nil {
		return err
	}
	ring, err := Read(file)
	if err != nil && !IsMissing(err) {
		return err
	}
	if with := ring.With(more); !bytes.Equal(with.Text(), ring.Text()) {
		return with.Write(file)
	}
	return nil
}
