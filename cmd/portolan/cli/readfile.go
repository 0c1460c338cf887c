package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxFile bounds what ReadFile and ReadAll read.
const maxFile = 256 << 20

var errLarge = fmt.Errorf("is larger than %d MiB", maxFile>>20)

// ReadFile reads a whole file of at most 256 MiB. Its errors are those of os.ReadFile.
func ReadFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if about, err := file.Stat(); err == nil && about.Size() > maxFile {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errLarge}
	}
	text, err := ReadAll(file)
	if errors.Is(err, errLarge) {
		err = &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return text, err
}

// ReadAll reads to the end of what has at most 256 MiB, such as the standard input.
func ReadAll(in io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errLarge
	}
	return text, err
}
