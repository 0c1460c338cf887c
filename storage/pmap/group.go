package pmap

// Put sets a member of a group in a map of groups.
func Put[V comparable](groups Map[Map[V]], group, member string, value V) Map[Map[V]] {
	return groups.Set(group, groups.Value(group).Set(member, value))
}

// Remove deletes a member of a group in a map of groups, and with its last member the
// group.
func Remove[V comparable](groups Map[Map[V]], group, member string) Map[Map[V]] {
	left := groups.Value(group).Delete(member)
	if left.Len() == 0 {
		return groups.Delete(group)
	}
	return groups.Set(group, left)
}
