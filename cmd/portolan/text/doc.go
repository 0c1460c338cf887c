// Package text formats values for people, the same in the tables of the command line and in
// those that the config API serves: lists, maps, ages, tokens and rules.
package text
