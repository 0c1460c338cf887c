package rest

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/storage/config"
)

// layout writes a list piece by piece, in the form of the answer.
type layout struct {
	form
	out   *answer
	count int
}

// begin writes what precedes the elements. head is the list without them.
func (l *layout) begin(head []byte, elements string) error {
	switch {
	case l.media == runtime.ContentTypeYAML:
		text, err := config.JSONToYAML(head)
		l.out.add(text, []byte(elements+":"))
		return err
	case l.pretty:
		text, err := indented(head, "")
		l.out.add(bytes.TrimSuffix(text, []byte("\n}")), []byte(",\n  \""+elements+"\": ["))
		return err
	}
	l.out.add(bytes.TrimSuffix(head, []byte("}")), []byte(`,"`+elements+`":[`))
	return nil
}

// add writes an element, as form.item returns it.
func (l *layout) add(text []byte) {
	separator := ",\n"
	switch {
	case l.media == runtime.ContentTypeYAML:
		separator = "\n- "
	case l.count == 0:
		separator = "\n"
	}
	if l.pretty {
		separator += "    "
	}
	l.count++
	l.out.add([]byte(separator), text)
}

// end writes the rest, and sends it.
func (l *layout) end() error {
	end := "]}\n"
	switch {
	case l.media == runtime.ContentTypeYAML && l.count == 0:
		end = " []\n"
	case l.media == runtime.ContentTypeYAML:
		end = "\n"
	case l.pretty && l.count == 0:
		end = "]\n}\n"
	case l.pretty:
		end = "\n  ]\n}\n"
	}
	l.out.add([]byte(end))
	return l.out.end()
}
