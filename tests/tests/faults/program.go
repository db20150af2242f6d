// A program whose own nil dereference becomes a panic, which it recovers.
package main

import "fmt"

type thing struct{ value *int }

//go:noinline
func work(n int) int { return n * 3 }

//go:noinline
func own(t *thing) (r int) {
	defer func() {
		if recover() != nil {
			r = -1
		}
	}()
	return *t.value
}

func main() {
	sum := own(&thing{})
	results := make(chan int)
	for g := 0; g < 4; g++ {
		go func() {
			n := 0
			for i := 0; i < 1000; i++ {
				n += work(i)
			}
			results <- n
		}()
	}
	for g := 0; g < 4; g++ {
		sum += <-results
	}
	fmt.Println("done", sum)
}
