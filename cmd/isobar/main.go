// Isobar runs the daemons of a cluster, and is what their operators and users work with.
package main

import (
	"os"

	"github.com/isobar-io/isobar/internal/cli"
)

func main() { os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr)) }
