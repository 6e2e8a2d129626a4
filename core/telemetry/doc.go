// Package telemetry is how the broker tells what it does: the logger, and one
// table of metrics that makes both what is scraped and docs/metrics.md.
//
// It owns names, labels and help texts, and turns the events of other packages
// into numbers. It never decides anything, starts nothing, and its methods
// never block: they are called from hot paths.
//
// Invariants: every metric is in the table, has a help text and is used, and the
// document is the table (TestDocument); no label's values are unbounded: past a
// limit they count as "other" (TestLabelsAreBounded).
package telemetry
