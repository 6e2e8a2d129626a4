package image

import "iter"

// tree is an immutable ordered map: put and remove return a new tree that
// shares all but one path with the old one, so that a change costs the depth
// and not the size. The zero value is empty. It is an AVL tree.
type tree[K, V any] struct {
	root *node[K, V]
	size int
}

type node[K, V any] struct {
	key         K
	value       V
	left, right *node[K, V]
	height      int8
}

func (n *node[K, V]) depth() int8 {
	if n == nil {
		return 0
	}
	return n.height
}

func (t tree[K, V]) get(key K, compare func(a, b K) int) (V, bool) {
	n := t.root
	for n != nil {
		c := compare(key, n.key)
		if c == 0 {
			return n.value, true
		}
		if c < 0 {
			n = n.left
		} else {
			n = n.right
		}
	}
	var none V
	return none, false
}

func (t tree[K, V]) put(key K, value V, compare func(a, b K) int) tree[K, V] {
	root, grew := t.root.put(key, value, compare)
	if grew {
		return tree[K, V]{root, t.size + 1}
	}
	return tree[K, V]{root, t.size}
}

func (t tree[K, V]) remove(key K, compare func(a, b K) int) tree[K, V] {
	if _, ok := t.get(key, compare); !ok {
		return t
	}
	return tree[K, V]{t.root.remove(key, compare), t.size - 1}
}

// all goes through the tree in key order.
func (t tree[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.root.walk(yield) }
}

func (n *node[K, V]) walk(yield func(K, V) bool) bool {
	return n == nil || n.left.walk(yield) && yield(n.key, n.value) && n.right.walk(yield)
}

func (n *node[K, V]) put(key K, value V, compare func(a, b K) int) (*node[K, V], bool) {
	if n == nil {
		return &node[K, V]{key: key, value: value, height: 1}, true
	}
	c := compare(key, n.key)
	fresh := *n
	var grew bool
	switch {
	case c == 0:
		fresh.value = value
		return &fresh, false
	case c < 0:
		fresh.left, grew = n.left.put(key, value, compare)
	default:
		fresh.right, grew = n.right.put(key, value, compare)
	}
	return fresh.balanced(), grew
}

// remove takes out a key that is there.
func (n *node[K, V]) remove(key K, compare func(a, b K) int) *node[K, V] {
	fresh := *n
	switch c := compare(key, n.key); {
	case c < 0:
		fresh.left = n.left.remove(key, compare)
	case c > 0:
		fresh.right = n.right.remove(key, compare)
	case n.left == nil:
		return n.right
	case n.right == nil:
		return n.left
	default:
		next := n.right
		for next.left != nil {
			next = next.left
		}
		fresh.key, fresh.value = next.key, next.value
		fresh.right = n.right.remove(next.key, compare)
	}
	return fresh.balanced()
}

// balanced restores the balance of a node that nobody else has seen yet.
func (n *node[K, V]) balanced() *node[K, V] {
	switch tilt := n.left.depth() - n.right.depth(); {
	case tilt > 1:
		if n.left.left.depth() < n.left.right.depth() {
			left := *n.left
			n.left = left.rotatedLeft()
		}
		return n.rotatedRight()
	case tilt < -1:
		if n.right.right.depth() < n.right.left.depth() {
			right := *n.right
			n.right = right.rotatedRight()
		}
		return n.rotatedLeft()
	}
	n.measure()
	return n
}

func (n *node[K, V]) rotatedRight() *node[K, V] {
	top := *n.left
	n.left = top.right
	n.measure()
	top.right = n
	top.measure()
	return &top
}

func (n *node[K, V]) rotatedLeft() *node[K, V] {
	top := *n.right
	n.right = top.left
	n.measure()
	top.left = n
	top.measure()
	return &top
}

func (n *node[K, V]) measure() { n.height = 1 + max(n.left.depth(), n.right.depth()) }
