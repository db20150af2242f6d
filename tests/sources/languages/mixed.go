// Panics, goroutines, floating point, maps and a switch in Go.
package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sort"
	"sync"
)

type refused struct{ code int }

func (r refused) Error() string { return "refused" }

func act(n int) (int, error) {
	switch n % 8 {
	case 0:
		return n + 3, nil
	case 1:
		return n * 5, nil
	case 2:
		return n - 7, nil
	case 3:
		return 0, refused{n}
	case 4:
		return n ^ 0x55, nil
	case 5:
		return n << 2, nil
	case 6:
		panic(refused{n})
	default:
		return -n, nil
	}
}

func guarded(n int) (r int) {
	defer func() {
		if e := recover(); e != nil {
			r = e.(refused).code * 10
		}
	}()
	v, err := act(n)
	var no refused
	if errors.As(err, &no) {
		return no.code * 100
	}
	return v
}

func main() {
	sum := 0
	for i := 0; i < 1000; i++ {
		sum += guarded(i)
	}
	fmt.Println("sum", sum)
	var wait sync.WaitGroup
	parts := make([]int, 4)
	for k := range parts {
		wait.Add(1)
		go func(k int) {
			defer wait.Done()
			for i := k; i < k+300; i++ {
				parts[k] += guarded(i)
			}
		}(k)
	}
	wait.Wait()
	fmt.Println("total", parts)
	wave := 0.0
	for i := 1; i < 100; i++ {
		wave += math.Sin(float64(i)*0.1) * math.Sqrt(float64(i))
	}
	fmt.Printf("wave %.6f\n", wave)
	counts := map[string]int{}
	for _, w := range []string{"the", "cat", "and", "the", "dog"} {
		counts[w]++
	}
	keys := []string{}
	for k := range counts {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	fmt.Println(keys, counts["the"])
	func() {
		defer func() { fmt.Println(recover() != nil) }()
		fmt.Println(keys[sum])
	}()
	func() {
		defer func() { fmt.Println(recover() != nil) }()
		var p *refused
		fmt.Println(p.code)
	}()
	os.Exit(3)
}
