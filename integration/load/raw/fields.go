package raw

import "google.golang.org/protobuf/encoding/protowire"

// Each calls f with the number and the content of every length-delimited field of a message.
func Each(message []byte, f func(n protowire.Number, content []byte)) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
				return protowire.ParseError(size)
			}
			message = message[size:]
			continue
		}
		content, size := protowire.ConsumeBytes(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		f(n, content)
	}
	return nil
}

// Field returns the content of the last occurrence of a field, nil if the message has none or
// is malformed.
func Field(message []byte, number protowire.Number) []byte {
	var out []byte
	err := Each(message, func(n protowire.Number, content []byte) {
		if n == number {
			out = content
		}
	})
	if err != nil {
		return nil
	}
	return out
}

// AppendText appends a text field, unless number is 0 or the text is empty.
func AppendText(to []byte, number protowire.Number, text string) []byte {
	if number == 0 || text == "" {
		return to
	}
	return protowire.AppendString(protowire.AppendTag(to, number, protowire.BytesType), text)
}
