// Opens a plugin and calls its function.
package main

import (
	"fmt"
	"os"
	"plugin"
)

func main() {
	opened, err := plugin.Open(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	symbol, err := opened.Lookup("Join")
	if err != nil {
		panic(err)
	}
	fmt.Println(symbol.(func(int) string)(1000))
}
