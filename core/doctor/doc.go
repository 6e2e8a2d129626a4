// Package doctor says what is wrong with a cluster, and what would be if one of its brokers,
// racks or controllers died now.
//
// It owns that judgement, the IDs and words of its findings, and the plan that mends what
// replicas and leaders can mend. It never asks a cluster: what was seen is given to it as
// plain values, by whoever speaks the protocol, so that it judges any cluster that speaks
// Kafka's. It has no clock, and changes nothing that it is given.
//
// What is unknown is the zero value of its field, and is never taken for good or bad: nothing
// is found about it.
//
// Invariants:
//   - The report is the same in whatever order things were seen (TestReportHasOneOrder).
//   - What it says of a death is what it finds when the cluster is looked at after that death
//     (TestDeathIsWhatIsFoundAfterIt).
//   - A cluster that loses nothing by any one death, and is as it was asked to be, has no
//     finding (TestFindings).
//   - What a finding says that a plan mends is in the plan (TestPlanMends).
//   - What is planned has all its replicas on brokers that serve, and leaves nothing to plan: at most, once, who
//     leads the groups (TestPlanMends).
package doctor
