package cache

import (
	"math/bits"
	"reflect"
)

// perChange estimates the memory of a changed entry of a persistent map, without its
// value: the nodes on the path to it.
const perChange = 1 << 10

// difference counts the entries in which two contents differ, and estimates the memory
// that only the first of the two keeps.
type difference struct {
	entries int
	bytes   int64
}

func (d difference) plus(o difference, times int) difference {
	return difference{d.entries + times*o.entries, d.bytes + int64(times)*o.bytes}
}

// exceeds says whether either count is above its limit.
func (d difference) exceeds(limit difference) bool {
	return d.entries > limit.entries || d.bytes > limit.bytes
}

// differences compares a content with the one that follows it.
func (c *Content) differences(next *Content) (d difference) {
	for _, t := range trees {
		d = d.plus(t.differences(c, next), +1)
	}
	return d
}

// footprint estimates the bytes that a value refers to, without the value itself. It
// does not follow unexported fields.
func footprint(v reflect.Value) int64 {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		return int64(v.Type().Elem().Size()) + footprint(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		v = v.Elem()
		if v.Kind() == reflect.Pointer {
			return footprint(v)
		}
		return int64(v.Type().Size()) + footprint(v)
	case reflect.String:
		return int64(v.Len())
	case reflect.Slice:
		n := int64(v.Cap()) * int64(v.Type().Elem().Size())
		if refers(v.Type().Elem()) {
			for i := range v.Len() {
				n += footprint(v.Index(i))
			}
		}
		return n
	case reflect.Map:
		return footprintOfMap(v)
	case reflect.Struct:
		var n int64
		for i := range v.NumField() {
			if field := v.Field(i); field.CanInterface() && refers(field.Type()) {
				n += footprint(field)
			}
		}
		return n
	}
	return 0
}

// footprintOfMap counts slots: they come in powers of two, and an eighth is free.
func footprintOfMap(v reflect.Value) int64 {
	if v.IsNil() {
		return 0
	}
	const header, group = 48, 8
	key, value := v.Type().Key(), v.Type().Elem()
	slots := max(group, int64(1)<<bits.Len(uint(v.Len())*group/(group-1)))
	n := header + slots*int64(key.Size()+value.Size()+1)
	for all := v.MapRange(); all.Next(); {
		n += footprint(all.Key()) + footprint(all.Value())
	}
	return n
}

// refers says whether a value of a type may refer to memory.
func refers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.String, reflect.Slice, reflect.Map, reflect.Struct:
		return true
	}
	return false
}
