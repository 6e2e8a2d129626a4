package image

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The tree is a map in key order that never changes under a reader, and is
// balanced.
func TestTreeIsAnImmutableMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr tree[int, int]
		model := map[int]int{}
		type version struct {
			tree  tree[int, int]
			model map[int]int
		}
		var old []version
		for i := range rapid.IntRange(1, 120).Draw(t, "steps") {
			key := rapid.IntRange(0, 40).Draw(t, "key")
			if rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
				tr = tr.remove(key, cmp.Compare[int])
				delete(model, key)
			} else {
				tr = tr.put(key, i, cmp.Compare[int])
				model[key] = i
			}
			old = append(old, version{tr, maps.Clone(model)})
		}
		for _, v := range old {
			if got := maps.Collect(v.tree.all()); !maps.Equal(got, v.model) {
				t.Fatalf("tree %v, model %v", got, v.model)
			}
			var keys []int
			for k, want := range v.tree.all() {
				keys = append(keys, k)
				if got, ok := v.tree.get(k, cmp.Compare[int]); !ok || got != want {
					t.Fatalf("get(%d) = %d, %v; want %d", k, got, ok, want)
				}
			}
			if !slices.IsSorted(keys) || len(keys) != v.tree.size {
				t.Fatalf("keys %v, size %d", keys, v.tree.size)
			}
			checkBalance(t, v.tree.root)
		}
	})
}

func checkBalance(t *rapid.T, n *node[int, int]) int8 {
	if n == nil {
		return 0
	}
	l, r := checkBalance(t, n.left), checkBalance(t, n.right)
	if l-r > 1 || r-l > 1 || n.height != 1+max(l, r) {
		t.Fatalf("node %d: depths %d and %d, height %d", n.key, l, r, n.height)
	}
	return n.height
}
