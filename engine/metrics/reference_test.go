package metrics_test

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/isobar-io/isobar/engine/metrics"
)

var rewrite = flag.Bool("rewrite", false, "write the reference page instead of comparing it")

func TestReferencePageIsCurrent(t *testing.T) {
	const page = "../../docs/metrics.md"
	if *rewrite {
		if err := os.WriteFile(page, []byte(metrics.Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != metrics.Markdown() {
		t.Error("docs/metrics.md is stale: run go test ./engine/metrics -rewrite")
	}
}

// documented returns the rows of the reference page: type and labels by name.
func documented(t *testing.T) map[string][2]string {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][2]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(isobar_\\w+)` \\| (\\w+) \\| (.*?) \\| (.+) \\|$").FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = [2]string{m[2], strings.NewReplacer("`", "", ", ", " ", "none", "").Replace(m[3])}
	}
	return rows
}

func TestNamesFollowTheConventions(t *testing.T) {
	rows := documented(t)
	if len(rows) < 20 {
		t.Fatalf("the page has %d metrics", len(rows))
	}
	for name, row := range rows {
		if counts := strings.HasSuffix(name, "_total"); counts != (row[0] == "counter") {
			t.Errorf("%s is a %s", name, row[0])
		}
		if row[0] == "histogram" && !strings.HasSuffix(name, "_seconds") {
			t.Errorf("%s is a histogram without a unit", name)
		}
	}
}

// A run that has done a bit of everything shows every metric that is documented, with
// the labels and the type that the page says, and no other.
func checkComplete(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	rows := documented(t)
	for name := range families {
		if _, ok := rows[name]; !ok && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s is served and not documented", name)
		}
	}
	for name, row := range rows {
		f := families[name]
		if f == nil {
			t.Errorf("%s is documented and not served", name)
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); kind != row[0] {
			t.Errorf("%s is a %s, documented as a %s", name, kind, row[0])
		}
		want := append(strings.Fields(row[1]), "topology")
		slices.Sort(want)
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if !slices.Equal(labels, want) {
				t.Errorf("%s has the labels %q, documented are %q", name, labels, want)
			}
		}
	}
}

// checkDashboard: the dashboard asks for nothing that is not served, by labels that
// it does not have.
func checkDashboard(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/isobar.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	rows := documented(t)
	names := regexp.MustCompile(`\b(?:isobar|go|process)_\w+`)
	words := regexp.MustCompile(`by \(([^)]*)\)|(\w+)=~?"|\{\{(\w+)\}\}`)
	seen := map[string]bool{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			labels := []string{"topology", "le", "instance"} // the last is Prometheus' own
			for _, name := range names.FindAllString(target.Expr, -1) {
				base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
				if f := families[base]; base != name && (f == nil || f.GetType() != dto.MetricType_HISTOGRAM) || families[base] == nil {
					t.Errorf("panel %q asks for %s, which is not served", p.Title, name)
				}
				seen[base] = true
				labels = append(labels, strings.Fields(rows[base][1])...)
			}
			for _, m := range words.FindAllStringSubmatch(target.Expr+target.LegendFormat, -1) {
				for _, label := range strings.Split(m[1]+m[2]+m[3], ", ") {
					if !slices.Contains(labels, label) {
						t.Errorf("panel %q asks for the label %q of %s", p.Title, label, target.Expr)
					}
				}
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("the dashboard shows %d metrics", len(seen))
	}
}
