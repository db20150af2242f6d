// Blocks of Go's heap, allocated by three functions, some of them in memory that the collector has freed.
// variants: go-strip
// counts: no
// stdout: 1525 998500500
package main

import (
	"fmt"
	"runtime"
)

type node struct {
	left, right *node
	value       int
}

//go:noinline
func tree(depth int) *node {
	if depth == 0 {
		return &node{value: 1}
	}
	return &node{tree(depth - 1), tree(depth - 1), depth}
}

func (n *node) sum() int {
	if n == nil {
		return 0
	}
	return n.value + n.left.sum() + n.right.sum()
}

//go:noinline
func table(n int) []int64 {
	return make([]int64, n)
}

func main() {
	root := tree(9)
	squares := table(1000)
	for i := range squares {
		squares[i] = int64(i * i)
	}
	total := int64(0)
	for i := 0; i < 3; i++ {
		for _, s := range squares {
			total += s
		}
	}
	runtime.GC()
	for i := 0; i < 50; i++ {
		tree(9)
	}
	fmt.Println(root.sum(), total)
}
