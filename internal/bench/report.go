package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// column is something that is measured of every variant.
type column struct {
	key     string // in JSON, with its unit
	heading string
	unit    float64 // what the table shows as one
	digits  int     // behind the point, in the table
}

// ratioKey is the name of a ratio in JSON.
func ratioKey(base string) string { return "ratio_to_" + strings.ReplaceAll(base, "-", "_") }

// report writes the medians of what was measured and the ratios to the bases.
func (c *comparison) report(out io.Writer, workload string, samples [][]sample, asJSON bool) error {
	if asJSON {
		return c.reportJSON(out, workload, samples)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\t", c.label)
	for _, col := range c.columns {
		fmt.Fprintf(w, "%s\t", col.heading)
	}
	for _, base := range c.bases {
		fmt.Fprintf(w, "to %s\t", base)
	}
	for i, v := range c.variants {
		fmt.Fprintf(w, "\n%s\t", v.name)
		for j, col := range c.columns {
			fmt.Fprintf(w, "%s\t", orDash(medianOf(samples[i], j)/col.unit, col.digits))
		}
		for _, base := range c.bases {
			fmt.Fprintf(w, "%s\t", orDash(ratio(samples[i], c.find(samples, base), c.compared), 2))
		}
	}
	if c.targets != nil {
		fmt.Fprint(w, "\ntarget\t")
		for _, col := range c.columns {
			fmt.Fprintf(w, "%s\t", c.targets[col.key])
		}
		for _, base := range c.bases {
			fmt.Fprintf(w, "%s\t", c.targets[ratioKey(base)])
		}
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range c.skipped {
		fmt.Fprintf(out, "%s is skipped: %s\n", s.name, s.why)
	}
	return nil
}

// reportJSON writes a line for each variant. What was not measured is left out.
func (c *comparison) reportJSON(out io.Writer, workload string, samples [][]sample) error {
	e := json.NewEncoder(out)
	for i, v := range c.variants {
		row := map[string]any{"workload": workload, "case": c.label, "mode": v.name}
		set := func(key string, x float64) {
			if !math.IsNaN(x) && !math.IsInf(x, 0) {
				row[key] = x
			}
		}
		for j, col := range c.columns {
			set(col.key, medianOf(samples[i], j))
		}
		for _, base := range c.bases {
			set(ratioKey(base), ratio(samples[i], c.find(samples, base), c.compared))
		}
		if err := e.Encode(row); err != nil {
			return err
		}
	}
	for _, s := range c.skipped {
		row := map[string]any{"workload": workload, "case": c.label, "mode": s.name, "skipped": s.why}
		if err := e.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

// find returns the samples of the variant of a name, nil if it was not measured.
func (c *comparison) find(samples [][]sample, name string) []sample {
	i := slices.IndexFunc(c.variants, func(v variant) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return samples[i]
}

// ratio returns the median of the ratios within each round, NaN if there is no base.
func ratio(samples, base []sample, column int) float64 {
	if base == nil {
		return math.NaN()
	}
	return median(samples, func(round int, x sample) float64 { return x[column] / base[round][column] })
}

func medianOf(samples []sample, column int) float64 {
	return median(samples, func(_ int, x sample) float64 { return x[column] })
}

func median(samples []sample, of func(round int, x sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, x := range samples {
		values[i] = of(i, x)
	}
	slices.SortFunc(values, cmp.Compare)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}

func orDash(x float64, digits int) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, x)
}
