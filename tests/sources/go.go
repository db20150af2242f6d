// A Go program: growing stacks, panics and their traces, nil dereferences, defer and recover, goroutines
// that are stopped while they compute, collections, maps, interfaces, closures, reflection, finalizers, timers,
// signals, deadlock reports.
// variants: go go-strip go-pie go-pie-strip go-external go-externalstatic go-external-pie
// counts: no
// run: -> exit 0 stdout deep 1250025000 nil: runtime error: invalid memory address or nil pointer dereference index: runtime error: index out of range [5] with length 3 order 3 2 1 result 42 goexit deferred goroutines 190 sum 2000017 shapes 30 closures 10 maps 1000 sorted a b c method value 9 reflected 12 collected 10 timer fired signal user defined signal 1 stopped true trace main.inner:main.middle:main.outer:main.trace callers main.caller go.go
// run: exit -> exit 7 stdout
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path"
	"reflect"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type shape interface{ area() int }
type square struct{ side int }
type rectangle struct{ a, b int }

func (s square) area() int     { return s.side * s.side }
func (r *rectangle) area() int { return r.a * r.b }

// A frame of half a kilobyte on each of many levels: the stack is copied several times.
//
//go:noinline
func deep(n int) int {
	var a [64]int
	if n == 0 {
		return 0
	}
	a[n%64] = n
	return deep(n-1) + a[n%64]
}

func try(what string, f func()) {
	defer func() { fmt.Println(what, recover()) }()
	f()
}

//go:noinline
func load(r *rectangle) int { return r.a }

//go:noinline
func element(list []int, i int) int { return list[i] }

func result() (n int) {
	defer func() {
		recover()
		n *= 2
	}()
	n = 21
	panic("again")
}

//go:noinline
func inner() string { return string(debug.Stack()) }

//go:noinline
func middle() string { return inner() }

func outer() string { return middle() }

//go:noinline
func trace() string {
	var names []string
	for _, line := range strings.Split(outer(), "\n") {
		if strings.HasPrefix(line, "main.") && !strings.HasPrefix(line, "main.main") {
			names = append(names, line[:strings.Index(line, "(")])
		}
	}
	return strings.Join(names, ":")
}

//go:noinline
func caller() string {
	var pcs [4]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	frame, _ := frames.Next()
	return frame.Function + " " + path.Base(frame.File)
}

// A loop without calls: the collector can stop it by a signal only.
func spin(stop *int32) bool {
	n := 0
	for atomic.LoadInt32(stop) == 0 {
		n++
	}
	return n > 0
}

func main() {
	if len(os.Args) > 1 {
		defer fmt.Println("never")
		os.Exit(7)
	}
	fmt.Println("deep", deep(50000-1)+50000)
	try("nil:", func() { load(nil) })
	try("index:", func() { element([]int{1, 2, 3}, 5) })
	fmt.Print("order ")
	func() {
		for i := 1; i <= 3; i++ {
			defer fmt.Print(i, " ")
		}
	}()
	fmt.Println("result", result())

	var wait sync.WaitGroup
	wait.Add(1)
	go func() {
		defer wait.Done()
		defer fmt.Println("goexit deferred")
		runtime.Goexit()
	}()
	wait.Wait()

	numbers := make(chan int, 4)
	var lock sync.Mutex
	total := 0
	for g := 0; g < 20; g++ {
		wait.Add(1)
		go func(g int) {
			defer wait.Done()
			n := 0
			for i := 0; i < 10000; i++ {
				n += (i + g) % 21
			}
			lock.Lock()
			total += n
			lock.Unlock()
			numbers <- g
		}(g)
	}
	ids := 0
	for g := 0; g < 20; g++ {
		ids += <-numbers
	}
	wait.Wait()
	fmt.Println("goroutines", ids, "sum", total)

	areas := 0
	for i, s := range []shape{square{2}, &rectangle{3, 4}, square{3}, &rectangle{5, 1}} {
		areas += s.area() * (1 - i/4)
	}
	var steps []func() int
	for i := 0; i < 5; i++ {
		i := i
		steps = append(steps, func() int { return i })
	}
	sum := 0
	for _, step := range steps {
		sum += step()
	}
	counts := map[string]int{}
	for i := 0; i < 100000; i++ {
		counts[fmt.Sprint("k", i%1000)]++
	}
	letters := []string{"c", "a", "b"}
	sort.Slice(letters, func(i, j int) bool { return letters[i] < letters[j] })
	fmt.Println("shapes", areas, "closures", sum, "maps", len(counts), "sorted", strings.Join(letters, " "))

	area := square{3}.area
	swap := reflect.MakeFunc(reflect.TypeOf(func(int, int) int { return 0 }), func(in []reflect.Value) []reflect.Value {
		return []reflect.Value{reflect.ValueOf(int(in[0].Int() * in[1].Int()))}
	})
	product := swap.Call([]reflect.Value{reflect.ValueOf(3), reflect.ValueOf(4)})[0].Int()
	var collected int32
	for i := 0; i < 10; i++ {
		r := &rectangle{i, i}
		runtime.SetFinalizer(r, func(*rectangle) { atomic.AddInt32(&collected, 1) })
	}
	for i := 0; i < 1000 && atomic.LoadInt32(&collected) < 10; i++ {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	fmt.Println("method value", area(), "reflected", product, "collected", atomic.LoadInt32(&collected))

	<-time.After(2 * time.Millisecond)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
	fmt.Println("timer fired signal", <-signals)

	var stop int32
	done := make(chan bool)
	go func() { done <- spin(&stop) }()
	for i := 0; i < 20; i++ {
		runtime.GC()
	}
	atomic.StoreInt32(&stop, 1)
	fmt.Println("stopped", <-done, "trace", trace(), "callers", caller())
}
