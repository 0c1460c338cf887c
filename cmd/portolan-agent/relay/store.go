package relay

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/renameio/v2"
	"google.golang.org/protobuf/encoding/protodelim"
)

// Store keeps the last good configuration of each client in a directory: what the client has
// acknowledged. A client is known by its node id without the address. It keeps no secrets. Each file is replaced atomically and is on disk before the
// old one goes. Several goroutines may use a Store.
type Store struct {
	dir    string
	maxAge time.Duration
	now    func() time.Time
	logger *slog.Logger

	mu sync.Mutex // one writer at a time
}

// OpenStore returns the store of a directory, which it makes if it is missing. It removes what is
// older than maxAge.
func OpenStore(dir string, maxAge time.Duration, logger *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, maxAge: maxAge, now: time.Now, logger: logger}
	files, err := filepath.Glob(filepath.Join(dir, "*"+keptSuffix+"*"))
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && s.now().Sub(info.ModTime()) > maxAge {
			_ = os.Remove(file)
		}
	}
	return s, err
}

// A file is a line of JSON, the types as delimited DeltaDiscoveryResponses, and a hash of all that.
// Its modification time is when the client was last in touch with a server.
type header struct {
	Format  int    `json:"format"`
	Node    string `json:"node"`
	Variant string `json:"variant"`
	Types   int    `json:"types"`
}

const (
	keptFormat    = 1
	keptSuffix    = ".lastgood"
	damagedSuffix = ".damaged"
)

// ofAnyAddress returns the id of a node without its address (type~ip~id~domain), so that a machine
// whose address changes finds what it had. Any other id it returns as it is.
func ofAnyAddress(node string) string {
	parts := strings.Split(node, "~")
	if len(parts) != 4 {
		return node
	}
	return strings.Join(slices.Delete(parts, 1, 2), "~")
}

func (s *Store) path(node, variant string) string {
	sum := sha256.Sum256([]byte(variant + "\x00" + ofAnyAddress(node)))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:12])+keptSuffix)
}

// save replaces what is kept of a client. An error is logged: the client does not need the file
// now.
func (s *Store) save(k keptState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.write(k); err != nil {
		s.logger.Error("the last good configuration cannot be kept: free the disk or mend its rights", "proxy", k.Node, "err", err)
	}
}

func (s *Store) write(k keptState) error {
	var out bytes.Buffer
	head, err := json.Marshal(header{Format: keptFormat, Node: k.Node, Variant: k.Variant, Types: len(k.Types)})
	if err != nil {
		return err
	}
	out.Write(append(head, '\n'))
	for _, of := range k.Types {
		if _, err := protodelim.MarshalTo(&out, of); err != nil {
			return err
		}
	}
	sum := sha256.Sum256(out.Bytes())
	out.Write(sum[:])
	return renameio.WriteFile(s.path(k.Node, k.Variant), out.Bytes(), 0o600, renameio.WithTempDir(s.dir))
}

// confirm notes that what is kept of a client is what the servers have.
func (s *Store) confirm(node, variant string) {
	now := s.now()
	_ = os.Chtimes(s.path(node, variant), now, now) // the file is missing if the client has acknowledged nothing
}

// load returns what is kept of a client, by type; nil if there is nothing, or if it is too old. A
// damaged file is set aside.
func (s *Store) load(node, variant string) map[string]*discoveryv3.DeltaDiscoveryResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.path(node, variant)
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if age := s.now().Sub(info.ModTime()); age > s.maxAge {
		s.logger.Warn("the last good configuration is too old and is not used", "proxy", node, "age", age.Round(time.Second), "limit", s.maxAge)
		return nil
	}
	out, err := read(path, node, variant)
	if err != nil {
		s.logger.Error("the last good configuration is damaged and is set aside", "file", path+damagedSuffix, "err", errors.Join(err, os.Rename(path, path+damagedSuffix)))
		return nil
	}
	return out
}

func read(path, node, variant string) (map[string]*discoveryv3.DeltaDiscoveryResponse, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(raw) < sha256.Size {
		return nil, io.ErrUnexpectedEOF
	}
	body := raw[:len(raw)-sha256.Size]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], raw[len(body):]) {
		return nil, errors.New("its hash is wrong")
	}
	in := bufio.NewReader(bytes.NewReader(body))
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var head header
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, err
	}
	if head.Format != keptFormat || ofAnyAddress(head.Node) != ofAnyAddress(node) || head.Variant != variant {
		return nil, fmt.Errorf("it is of format %d, variant %s, proxy %s", head.Format, head.Variant, head.Node)
	}
	out := make(map[string]*discoveryv3.DeltaDiscoveryResponse, head.Types)
	for range head.Types {
		of := &discoveryv3.DeltaDiscoveryResponse{}
		if err := (protodelim.UnmarshalOptions{MaxSize: math.MaxInt32}).UnmarshalFrom(in, of); err != nil {
			return nil, err
		}
		out[of.GetTypeUrl()] = of
	}
	return out, nil
}

// Kept describes a file of the store.
type Kept struct {
	Proxy string    `json:"proxy"`
	Bytes int64     `json:"bytes"`
	As    time.Time `json:"as"` // when the proxy was last in touch with a server
}

// For says whether the file is for a client, at any address.
func (k Kept) For(node string) bool { return ofAnyAddress(k.Proxy) == ofAnyAddress(node) }

// List returns what the store has, in the order of its file names.
func (s *Store) List() []Kept {
	var out []Kept
	_ = filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, keptSuffix) {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer func() { _ = file.Close() }()
		var head header
		if line, err := bufio.NewReader(file).ReadBytes('\n'); err != nil || json.Unmarshal(line, &head) != nil {
			return nil
		}
		out = append(out, Kept{Proxy: head.Node, Bytes: info.Size(), As: info.ModTime().UTC()})
		return nil
	})
	return out
}
