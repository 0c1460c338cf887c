// Package file is the read-only cache of a directory of configuration: objects in YAML
// and JSON, in a tree that people, git or another program change.
//
//	files.Follow -> parse (decode, validate) -> Cache.update -> Feed.Publish
//
// Each set of changes at rest is one snapshot, whose revision counts the contents of this
// process. Two servers with the same files have the same objects, byte by byte: a
// version is the hash of the content, an object without a creationTimestamp is of
// 1970, and nothing comes from the time of a file.
//
// What is at fault takes nothing away. While a document of a file is broken, the objects
// that the file had stay. A file that cannot be read, or is empty, keeps what it held,
// and so does a directory (package files). Cache.Problems has all of it, by file,
// document and line. After a restart what is broken is absent, and in Problems.
//
// Several documents may be of one object: that of the first file counts, in the order of
// paths. If it goes, the next one takes its place.
package file
