package daemonconf

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

const deploy = "../../../deploy/"

// TestUnits: what the units of systemd set is known, and the example goes with them.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob(deploy + "systemd/*.service")
	if err != nil || len(units) != 3 {
		t.Fatalf("%d units, %v; want 3", len(units), err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		var environ []string
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Environment="); ok {
				environ = append(environ, v)
			}
		}
		if !slices.Contains(environ, "ISOBAR_CONFIG=/etc/isobar/isobar.yaml") {
			t.Errorf("%s does not name the configuration file: %v", unit, environ)
		}
		if _, err := Read(deploy+"systemd/isobar.yaml", environ, nil); err != nil {
			t.Errorf("%s: %v", unit, err)
		}
	}
}

// manifest is what is looked at of a manifest of Kubernetes.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Args []string
					Env  []struct{ Name, Value string }
				}
			}
		}
	}
}

func manifests(t *testing.T) (all []manifest) {
	files, err := filepath.Glob(deploy + "kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(f)
		for {
			var m manifest
			err := d.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, m)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestManifests: what the manifests of Kubernetes set for each daemon is known.
func TestManifests(t *testing.T) {
	all := manifests(t)
	i := slices.IndexFunc(all, func(m manifest) bool { return m.Kind == "ConfigMap" && m.Data["isobar.yaml"] != "" })
	if i < 0 {
		t.Fatal("no ConfigMap has an isobar.yaml")
	}
	path := file(t, all[i].Data["isobar.yaml"])
	var daemons []string
	for _, m := range all {
		for _, c := range m.Spec.Template.Spec.Containers {
			daemons = append(daemons, c.Args...)
			var environ []string
			for _, v := range c.Env {
				if v.Value == "" {
					v.Value = "1" // of the pod; a number is good for texts too
				}
				environ = append(environ, v.Name+"="+v.Value)
			}
			if _, err := Read(path, environ, nil); err != nil {
				t.Errorf("%s %s: %v", m.Kind, m.Metadata.Name, err)
			}
		}
	}
	slices.Sort(daemons)
	if want := []string{"nats", "nimbus", "supervisor"}; !slices.Equal(daemons, want) {
		t.Errorf("the manifests run %v, want %v", daemons, want)
	}
}
