// Workloads for `bench`: what programs of Go do much of their time. The argument names one.
package main

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
)

type record struct {
	Name   string
	Values []int
	Inner  map[string]float64
}

func jsonWork() int {
	var list []record
	for i := 0; i < 200; i++ {
		list = append(list, record{fmt.Sprint("name", i), []int{i, i * 2, i * 3}, map[string]float64{"a": float64(i), "b": 0.5}})
	}
	total := 0
	for i := 0; i < 1500; i++ {
		text, _ := json.Marshal(list)
		var back []record
		if err := json.Unmarshal(text, &back); err != nil {
			panic(err)
		}
		total += len(text) + len(back)
	}
	return total
}

func text(lines int) string {
	var b strings.Builder
	for i := 0; i < lines; i++ {
		fmt.Fprintf(&b, "2026-11-%02d host%d service[%d]: user=u%d took %d ms from 10.0.%d.%d\n", i%28+1, i%7, i, i*31%97, i%1000, i%255, i*7%255)
	}
	return b.String()
}

func regexpWork() int {
	lines := text(6000)
	dates := regexp.MustCompile(`(?m)^(\d{4})-(\d\d)-(\d\d) (\w+) .*user=(\w+) took (\d+) ms`)
	address := regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}\b`)
	n := 0
	for i := 0; i < 20; i++ {
		n += len(dates.FindAllStringSubmatch(lines, -1)) + len(address.ReplaceAllString(lines, "x"))
	}
	return n
}

func compressWork() int {
	data := []byte(text(20000))
	n := 0
	for i := 0; i < 24; i++ {
		var out bytes.Buffer
		w, _ := flate.NewWriter(&out, 6)
		w.Write(data)
		w.Close()
		back, _ := io.ReadAll(flate.NewReader(&out))
		n += len(back)
	}
	return n
}

func mapWork() int {
	counts := map[uint32]int{}
	words := map[string]int{}
	x := uint32(1)
	for i := 0; i < 20000000; i++ {
		x = x*1664525 + 1013904223
		counts[x>>14&0xffff]++
	}
	keys := make([]string, 5000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d", i*7919)
	}
	for i := 0; i < 40000000; i++ {
		words[keys[i%5000]] += i
	}
	return len(counts) + len(words)
}

func channelWork() int {
	const stages = 8
	in := make(chan int, 16)
	c := in
	for s := 0; s < stages; s++ {
		next := make(chan int, 16)
		go func(from, to chan int) {
			for v := range from {
				to <- v + 1
			}
			close(to)
		}(c, next)
		c = next
	}
	go func() {
		for i := 0; i < 1500000; i++ {
			in <- i
		}
		close(in)
	}()
	sum := 0
	for v := range c {
		sum += v
	}
	return sum
}

// Waits below `depth` frames, in which the collector looks for pointers by the tables of the frames' functions.
func wait(depth int, left *record, never chan int) int {
	if depth == 0 {
		return <-never
	}
	var kept [4]*record
	kept[depth%4] = left
	result := wait(depth-1, kept[depth%4], never)
	return result + len(kept[depth%4].Values)
}

// Collects garbage while 100 goroutines wait in deep stacks; there is little else to look through.
func collectWork() int {
	never := make(chan int)
	for i := 0; i < 100; i++ {
		go wait(400+i, &record{Values: []int{i}}, never)
	}
	time.Sleep(50 * time.Millisecond)
	for i := 0; i < 400; i++ {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.NumForcedGC)
}

func main() {
	work := map[string]func() int{"json": jsonWork, "regexp": regexpWork, "compress": compressWork, "map": mapWork, "channel": channelWork, "collect": collectWork}
	fmt.Println(work[os.Args[1]]())
}
