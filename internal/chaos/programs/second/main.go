// Second is the second version of a topology program.
package main

import (
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/internal/chaos/programs/verses"
)

func main() { app.Main("verses", verses.Build("second")) }
