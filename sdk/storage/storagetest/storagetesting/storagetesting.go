package storagetesting

import (
	"testing"

	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

// RunT runs the kit against the target, with a subtest for each case. Cases
// that are not applicable are skipped, with the reason. It fails the test when
// a case fails, or none passes.
func RunT(t *testing.T, target storagetest.Target, opt storagetest.Options) storagetest.Report {
	t.Helper()
	report := storagetest.Run(t.Context(), target, opt)
	for _, result := range report.Results {
		t.Run(result.Name, func(t *testing.T) {
			switch result.Status {
			case storagetest.Passed:
			case storagetest.NotApplicable:
				t.Skip(result.Message)
			default:
				t.Errorf("%s\nseed %d, after %v: %s", result.About, report.Seed, result.Duration, result.Message)
			}
		})
	}
	if report.Count(storagetest.Passed) == 0 {
		t.Errorf("no case of the kit passed on %s", report.Target)
	}
	return report
}
