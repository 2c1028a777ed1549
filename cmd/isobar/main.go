// Isobar is the command that looks into checkpoints and configuration.
package main

import (
	"os"

	"github.com/isobar-io/isobar/internal/cli"
)

func main() { os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr)) }
