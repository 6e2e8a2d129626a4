// Package storagetest is the conformance kit of package storage: it checks a
// store, through whatever reaches it, against each rule of the contract.
//
// A Target says how to reach a store and what can be done to it: called
// directly (Direct), behind a lane, or as a process that can be killed. Run
// runs the Cases against it and reports each as passed, failed, or not
// applicable when the target lacks an ability that the case needs, or the store
// does not offer what it is about. What is not applicable is never counted as
// passed.
//
//	report := storagetest.Run(ctx, target, storagetest.Options{})
//	if !report.OK() { ... }
//
// The kit needs no go test; package storagetesting joins the two. A run draws
// all that is random from its seed, so that a failure can be had again, as far
// as the store itself is deterministic.
//
// The package never looks behind the contract: a case may fail a store for
// what package storage says, and for nothing else. That the cases find what
// they are for is checked by stores that are broken in one way each
// (broken_test.go), and that they ask for no more than the contract by the
// reference stores, which pass.
package storagetest
