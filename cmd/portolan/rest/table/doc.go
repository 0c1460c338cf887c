// Package table has the columns in which people see the objects of a kind. They are defined
// once: portolan get prints them, and the config API serves them as the Tables of Kubernetes,
// which kubectl prints.
//
// Columns are those of portolan get, in its order. A Table has the same columns in the order
// of Istio's CustomResourceDefinitions: first those that Istio prints, so that kubectl shows
// what it shows in a cluster, and then, for -o wide, all others.
package table
