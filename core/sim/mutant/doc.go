// Package mutant breaks the code on purpose, one place at a time, so that the tests of the
// simulators can see themselves fail.
//
// It owns what a mutation is, and how the go command is told of it. It never changes a file
// of the tree, and does not judge: who builds the mutant says what caught it.
package mutant
