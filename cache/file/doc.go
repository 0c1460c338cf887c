// Package file is the read-only cache of a directory of configuration: objects in YAML
// and JSON, in a tree that people, git or another program change.
//
//	files.Follow -> parse (decode, validate) -> Cache.update -> Feed.Publish
//
// Each set of settled changes is one snapshot. Its revision counts the snapshots of this
// process. Two servers with the same files have the same objects, byte for byte: a
// version is the hash of the content, an object without a creationTimestamp is of 1970,
// and nothing depends on the times of files.
//
// A fault removes nothing. While a document of a file is broken, the file's objects
// stay. A file that cannot be read, or is empty, keeps its objects, and so does a
// directory (package files). Cache.Problems lists all faults, by file, document and
// line. After a restart the broken files have no objects, but are still in Problems.
//
// If several documents define one object, the first file counts, in the order of paths. If
// it goes, the next one takes its place.
package file
