// Functions of Go whose instructions run the same number of times in each run: without checks of the stack's size, calls of the
// runtime, or pointers that are written. The rest of the program depends on time.
// variants: go go-strip go-pie
// counts-in: main.count
// stdout: 5050 [1 2 3 5 8 9] 55 three 1 0 75025
package main

import "fmt"

//go:nosplit
//go:noinline
func countSum(n int) int {
	sum := 0
	for i := 1; i <= n; i++ {
		sum += i
	}
	return sum
}

//go:nosplit
//go:noinline
func countSort(list *[6]int) {
	for i := range list {
		for j := i + 1; j < 6; j++ {
			if list[j] < list[i] {
				list[i], list[j] = list[j], list[i]
			}
		}
	}
}

//go:nosplit
//go:noinline
func countCase(n int) int {
	switch n {
	case 0:
		return 9
	case 1:
		return countSum(3)
	case 2:
		return 7
	case 3:
		return 1
	case 4:
		return 12
	case 5:
		return 15
	case 6:
		return 4
	case 7:
		return 1
	case 8:
		return 0
	}
	return 2
}

//go:nosplit
//go:noinline
func countName(n int) string {
	if n%3 == 0 {
		return "three"
	} else if n%5 == 0 {
		return "five"
	}
	return "other"
}

//go:nosplit
//go:noinline
func countClosure(n int, f func(int) int) int {
	for i := 0; i < n; i++ {
		n = f(n)
	}
	return n
}

//go:nosplit
//go:noinline
func countFibonacci(n int) int {
	a, b := 0, 1
	for ; n > 0; n-- {
		a, b = b, a+b
	}
	return a
}

func main() {
	list := [6]int{5, 3, 9, 1, 8, 2}
	countSort(&list)
	sum := 0
	for n := 0; n < 10; n++ {
		sum += countCase(n)
	}
	name := countName(sum)
	half := func(n int) int { return n / 2 }
	fmt.Println(countSum(100), list, sum-2, name, countClosure(7, half), countClosure(0, half), countFibonacci(25))
}
