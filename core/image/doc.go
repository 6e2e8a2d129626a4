// Package image is the cluster's metadata at one offset of the metadata log: an
// immutable value, and the deltas that lead from one to the next.
//
// It owns the metadata records, their encoding, and what replaying one does.
// Metadata lives nowhere else: what is not in the image does not exist. It
// never decides anything (the controller does), does no I/O, and reads no
// clock.
//
// Invariants: an Image is never changed after it is published; applying the
// same records in the same order gives the same image on every node; a record
// of a version that is not known is an error, never skipped; a change costs what
// it touches and not what there is (image_test.go, codec_test.go, tree_test.go).
//
// A field is added in a new version of its record, and a record is written in the
// oldest version that has all that it says. So a release that does not know the field
// goes on as long as nobody uses it, and its golden bytes stay. The feature level rises
// with what releases that run side by side have to agree upon before it is used.
//
// A deleted topic is remembered until every directory that held its logs has
// said that they are gone, so that a log found on disk is either known, known to
// be deleted, or unknown and then kept.
package image
