package files

import (
	"path"
	"time"
)

// linked touches all that is behind symbolic links, since a hidden link has changed, to
// which they may lead.
func (f *follower[T]) linked(now time.Time) {
	for rel, file := range f.files {
		if file.link {
			f.touch(rel, now)
		}
	}
	for rel, dir := range f.dirs {
		if dir.link && rel != top {
			f.walk(rel, f.ancestors(rel), now)
		}
	}
}

// deferLinked defers files behind symbolic links, unless all such files were read at one time:
// swapping one link may change them all, also those that nothing has notified of.
func (f *follower[T]) deferLinked(findings []finding[T]) {
	var behind []*finding[T]
	found, read := make(map[string]*finding[T], len(findings)), false
	for i := range findings {
		of := &findings[i]
		found[of.path] = of
		if (of.outcome == wasRead || of.outcome == unchanged) && f.isBehindLink(of.path, of.link) {
			behind, read = append(behind, of), read || of.outcome == wasRead
		}
	}
	if !read || f.isOneTime(found) {
		return
	}
	now := time.Now()
	for _, of := range behind {
		of.outcome, of.touched = inWork, now
	}
	f.linked(now)
}

// isOneTime says whether all files behind symbolic links are as they were found, or as they are
// known where they were not looked at. A file that cannot be read keeps its last content anyway.
func (f *follower[T]) isOneTime(found map[string]*finding[T]) bool {
	for rel, dir := range f.dirs {
		if !f.isBehindLink(rel, dir.link) {
			continue
		}
		if s, err := stat(f.absolute(rel)); err == nil && s.identity != dir.identity {
			return false
		}
	}
	for rel, file := range f.files {
		print, link, gone, faulty := file.print, file.link, false, f.faults[rel].Err != nil
		if of := found[rel]; of != nil {
			gone, faulty = of.outcome == isGone, of.outcome == atFault || of.outcome == inWork && faulty
			if of.outcome == wasRead || of.outcome == unchanged {
				print, link = of.print, of.link
			}
		}
		if faulty || !f.isBehindLink(rel, link) || f.inUnreadableDirectory(rel) {
			continue
		}
		if s, err := stat(f.absolute(rel)); (err != nil) != gone || err == nil && s.fingerprint != print {
			return false
		}
	}
	return true
}

// isBehindLink says whether a symbolic link leads to a path, as link says, or to a directory that
// it is below.
func (f *follower[T]) isBehindLink(rel string, link bool) bool {
	for dir := path.Dir(rel); !link && dir != top; dir = path.Dir(dir) {
		link = f.dirs[dir].link
	}
	return link
}
