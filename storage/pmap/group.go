package pmap

// Put adds a member to a group of a map of groups.
func Put[V comparable](groups Map[Map[V]], group, member string, value V) Map[Map[V]] {
	return groups.Set(group, groups.Value(group).Set(member, value))
}

// Remove takes a member out of a group of a map of groups, and the group with its last
// member.
func Remove[V comparable](groups Map[Map[V]], group, member string) Map[Map[V]] {
	left := groups.Value(group).Delete(member)
	if left.Len() == 0 {
		return groups.Delete(group)
	}
	return groups.Set(group, left)
}
