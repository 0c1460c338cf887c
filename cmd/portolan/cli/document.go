package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/portolan-mesh/portolan/storage/config"
)

// WriteDocument writes a value as JSON or YAML, by its JSON form.
func WriteDocument(out io.Writer, format string, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // the text is for people
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	if format == "yaml" {
		document, err := config.JSONToYAML(text.Bytes())
		if err != nil {
			return fmt.Errorf("write %s: %w", format, err)
		}
		_, err = out.Write(document)
		return err
	}
	_, err := text.WriteTo(out)
	return err
}

// FormatMiB formats a number of bytes for people.
func FormatMiB(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
}
