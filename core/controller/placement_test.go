package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

func brokers(t testing.TB, racks []string, fenced ...model.NodeID) *image.Image {
	records := []image.Record{&image.ClusterRecord{Cluster: image.Cluster{ID: "c", FeatureLevel: 1}}}
	for i, rack := range racks {
		id := model.NodeID(i)
		records = append(records, &image.BrokerRecord{ID: id, Rack: rack, Fenced: slices.Contains(fenced, id)})
	}
	img, err := image.FromRecords(1, records...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestPlacement(t *testing.T) {
	tests := []struct {
		racks      []string
		factor     int
		partitions int
		// The most that brokers may differ in leaders, and in replicas.
		leaders, replicas int
	}{
		{[]string{""}, 1, 50, 0, 0},
		{[]string{"", "", ""}, 3, 50, 1, 0},
		{[]string{"", "", ""}, 1, 50, 1, 1},
		{[]string{"a", "b", "c"}, 2, 48, 0, 0},
		{[]string{"a", "a", "b", "b"}, 2, 64, 0, 0},
		{[]string{"a", "a", "b", "b", "c", "c"}, 3, 60, 0, 0},
		{[]string{"a", "a", "b", "b", "c", "c"}, 2, 60, 0, 4},
		{[]string{"", "", "", "", ""}, 3, 50, 0, 2},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.racks, tt.factor), func(t *testing.T) {
			img := brokers(t, tt.racks)
			for seed := range uint64(20) {
				p := newPlacer(img, rand.New(rand.NewPCG(seed, 0)))
				leaders, replicas := make([]int, len(tt.racks)), make([]int, len(tt.racks))
				for range tt.partitions {
					r := p.place(tt.factor)
					leaders[r[0]]++
					for _, n := range r {
						replicas[n]++
					}
				}
				if d := slices.Max(leaders) - slices.Min(leaders); d > tt.leaders {
					t.Errorf("seed %d: leaders %v", seed, leaders)
				}
				if d := slices.Max(replicas) - slices.Min(replicas); d > tt.replicas {
					t.Errorf("seed %d: replicas %v", seed, replicas)
				}
			}
		})
	}
}

// Racks first: no rack has two replicas more than another that has room. Fenced
// brokers come last, and never first in an assignment.
func TestPlacementRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		racks := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 8).Draw(rt, "racks")
		var fenced []model.NodeID
		for i := range racks {
			if i > 0 && rapid.IntRange(0, 3).Draw(rt, "fenced") == 0 {
				fenced = append(fenced, model.NodeID(i))
			}
		}
		img := brokers(t, racks, fenced...)
		p := newPlacer(img, rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)))
		unfenced, all := p.usable()
		factor := rapid.IntRange(1, all).Draw(rt, "factor")
		for range 20 {
			r := p.place(factor)
			if d := slices.Compact(slices.Sorted(slices.Values(r))); len(r) != factor || len(d) != factor {
				rt.Fatalf("placed %v for factor %d", r, factor)
			}
			used, room := map[string]int{}, map[string]int{}
			for i, rack := range racks {
				if !slices.Contains(fenced, model.NodeID(i)) {
					room[rack]++
				}
			}
			for i, n := range r {
				if slices.Contains(fenced, n) != (i >= unfenced) {
					rt.Fatalf("placed %v; fenced are %v", r, fenced)
				}
				if i < unfenced {
					used[racks[n]]++
				}
			}
			for a := range room {
				for b := range room {
					if used[a] >= used[b]+2 && used[b] < room[b] {
						rt.Fatalf("placed %v: rack %s has %d, rack %s %d of %d", r, a, used[a], b, used[b], room[b])
					}
				}
			}
		}
	})
}
