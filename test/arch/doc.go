// Package arch holds the import rules of the tree, and fails the build when code
// crosses them. It owns the rules alone.
package arch
