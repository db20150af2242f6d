// A plugin. Its function collects garbage and recovers from a panic, in text that its host does not have.
package main

import (
	"fmt"
	"runtime"
	"strings"
)

// Join is what the host looks up.
func Join(n int) (text string) {
	defer func() {
		text += fmt.Sprint(recover())
	}()
	var b strings.Builder
	for i := 0; i < n; i++ {
		fmt.Fprint(&b, i%7)
	}
	runtime.GC()
	text = b.String()
	return text[:n+n]
}

func main() {}
