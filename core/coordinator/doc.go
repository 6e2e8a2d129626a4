// Package coordinator hosts the groups whose coordinator this broker is: one
// machine of core/group for each partition of the offsets topic that it leads, on a
// few loops.
//
// It owns which machines there are, the reading of their logs, the writing of what
// they ask for, and the offsets topic's creation. It never decides what becomes of a
// group, and never touches a store: it reads and writes as clients do, through
// model.Partitions.
//
// A machine gets its whole log, from the start to an end that was the log's own after
// the broker came to lead it and after all that an earlier machine here had asked to
// write was answered; the high watermark is waited for. What machines ask to be
// written in one turn goes out in one batch, with acks=all, under the leader epoch
// that they were told. Where the outcome of an append is not known the machine is
// dropped, with what was not sent yet, and another reads what there is.
//
// Invariants, and where they are tested:
//   - A group that has committed is never told that it has not
//     (TestNoOffsetBeforeAllIsRead, TestLoadWaitsForTheHighWatermark,
//     TestLoadWaitsForEarlierAppends, TestCommitsOutliveLostAnswersAndPower).
//   - Writes are told in the order of asking, and refused only when nothing of them is
//     in the log, nor will be (TestAnswersAreToldInOrder, TestRefusedWrites,
//     TestUnknownOutcomes, TestAnyOrderOfAnswers).
//   - A partition has one machine; nothing is written for one that has ended
//     (TestOneMachineTakesOver, TestNothingIsSentForAMachineThatHasEnded).
//   - Every question has one answer (TestEveryQuestionIsAnswered, TestLeadership).
//   - What is under way is bounded (TestFewAppendsAreUnderWay,
//     TestAllPartitionsTogetherKeepToTheShardsLimit, TestFewPartitionsAreReadAtOnce,
//     TestPiecesOfALogAreSmall).
//   - What groups keep is within Deps.Memory, and given back (TestGroupsKeepToTheirMemory).
//   - The offsets topic is asked for once, with all of its partitions, and why there is
//     none is told (TestFirstUseMakesTheTopicOnce, TestWhyThereIsNoCoordinator).
//   - Metadata that is behind removes nothing (TestImagesBeforeTheRegistration,
//     TestOffsetsOfTopicsThatComeAfterTheLoadStay).
//
// Sources: Kafka's group coordinator; KIP-115 (the replicas of the offsets topic),
// KIP-207 (the end of a log whose leader is new).
package coordinator
