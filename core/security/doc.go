// Package security says who calls and whether they may: principals, and the
// authorizer that every request passes.
//
// It never parses requests and never reads topics; only 'allow all' exists so
// far.
package security
