// Package storagetesting runs the storage conformance kit under go test. It
// holds nothing else; the cases are in package storagetest.
package storagetesting
