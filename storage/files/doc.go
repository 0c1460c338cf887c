// Package files follows files that people and programs edit: the tree of a directory,
// or one file. Its callers get whole files, never half of one, and few changes however
// many files an editor, git or rsync touches.
//
//	files.Follow(ctx, files.Options[T]{Path: dir, Parse: parse, Update: update})
//
// A notification only says where to look. Only what the file then holds counts.
//
//	event, scan -> pending -> look (stat, read, stat again, Parse) -> Update
//
// A changed path is read once nothing has changed below the root for Options.Settle, or
// once Options.MaxSettle has passed. While a file is missing, all paths wait five times as
// long: git and editors remove a file and write it again. The file counts as deleted once
// the whole tree is at rest, or after Options.Hold. A file whose stat differs before and
// after the read is read again.
//
// An empty result does not count as a deletion. An empty file keeps its last content, and
// so does a tree that has lost all its files or its root: a full disk, an unmounted volume
// and a failed sync look the same. To remove the content of a file, delete the file. To
// remove all files of a tree, leave one that holds only a comment.
package files
