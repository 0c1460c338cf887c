// Package files follows files that people and programs edit: the tree of a directory,
// or one file. What follows it gets contents at rest, never half of one, and few changes
// however many files an editor, git or rsync touches on its way.
//
//	files.Follow(ctx, files.Options[T]{Path: dir, Parse: parse, Update: update})
//
// A notification only says where to look: what counts is the file as it stands then.
//
//	event, scan -> pending -> look (stat, read, stat again, Parse) -> Update
//
// A path waits until nothing has happened to it for Options.Settle. All paths wait
// for that together, until Options.MaxSettle has passed. While a file is absent they wait
// five times as long, and it is gone only if the whole tree is at rest, or after
// Options.Hold: git and editors remove a file and write it anew. A file whose stat
// differs before and after it was read is read again.
//
// Nothing is never taken for the wish of nothing. A file that has become empty keeps its
// last content, and so does a tree that has lost all its files or its root: a full disk,
// a mount that is away and a failed sync look like that. Who means it deletes the file,
// or leaves one that holds a comment.
package files
