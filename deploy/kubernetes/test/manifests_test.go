// Package test checks the manifests against the types of Kubernetes. It is a module of its
// own, so that Isobar does not depend on those.
package test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	syaml "sigs.k8s.io/yaml"
)

const (
	folder    = ".."
	namespace = "isobar"
	kustomize = "kustomization.yaml"
)

// made are what secrets.sh makes, and isobar-s3, which is optional.
var made = map[string]bool{
	"ConfigMap/isobar-trust": true, "Secret/isobar-nats-tls": true, "Secret/isobar-links-tls": true,
	"Secret/isobar-nimbus": true, "Secret/isobar-supervisor": true, "Secret/isobar-s3": true,
}

// objects decodes all manifests, and takes no field that is unknown or there twice.
func objects(t *testing.T) (all []runtime.Object) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) == kustomize {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			all = append(all, object)
		}
	}
	if len(all) == 0 {
		t.Fatal("there are no manifests")
	}
	return all
}

// workload is what runs pods.
type workload struct {
	name     string
	selector *metav1.LabelSelector
	pod      corev1.PodTemplateSpec
	claims   []corev1.PersistentVolumeClaim
	service  string
}

func workloads(all []runtime.Object) (found []workload) {
	for _, o := range all {
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			found = append(found, workload{o.Name, o.Spec.Selector, o.Spec.Template, o.Spec.VolumeClaimTemplates, o.Spec.ServiceName})
		case *appsv1.Deployment:
			found = append(found, workload{o.Name, o.Spec.Selector, o.Spec.Template, nil, ""})
		}
	}
	return found
}

func TestKustomization(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, kustomize))
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		Namespace string   `json:"namespace"`
		Resources []string `json:"resources"`
	}
	if err := syaml.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{kustomize}
	for _, r := range k.Resources {
		want = append(want, r)
	}
	slices.Sort(want)
	var got []string
	for _, f := range files {
		got = append(got, filepath.Base(f))
	}
	if !slices.Equal(got, want) {
		t.Errorf("it has %v, and the folder %v", want, got)
	}
	for _, o := range objects(t) {
		m := o.(metav1.Object)
		if _, is := o.(*corev1.Namespace); !is && m.GetNamespace() != namespace || is && m.GetName() != namespace || k.Namespace != namespace {
			t.Errorf("%T %s is in namespace %q, want %q", o, m.GetName(), m.GetNamespace(), namespace)
		}
	}
}

// TestReferences: what is named is there, and what is selected is that.
func TestReferences(t *testing.T) {
	all := objects(t)
	there := map[string]bool{}
	for name := range made {
		there[name] = true
	}
	for _, o := range all {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			there["ConfigMap/"+o.Name] = true
		case *corev1.Service:
			there["Service/"+o.Name] = true
		case *corev1.ServiceAccount:
			there["ServiceAccount/"+o.Name] = true
		}
	}
	needs := func(who, kind, name string) {
		if name != "" && !there[kind+"/"+name] {
			t.Errorf("%s names %s %s, which is not there", who, kind, name)
		}
	}
	for _, w := range workloads(all) {
		if !matches(t, w.selector, w.pod.Labels) {
			t.Errorf("%s does not select its own pods", w.name)
		}
		needs(w.name, "Service", w.service)
		needs(w.name, "ServiceAccount", w.pod.Spec.ServiceAccountName)
		volumes := map[string]bool{}
		for _, c := range w.claims {
			volumes[c.Name] = true
		}
		for _, v := range w.pod.Spec.Volumes {
			volumes[v.Name] = true
			if v.ConfigMap != nil {
				needs(w.name, "ConfigMap", v.ConfigMap.Name)
			}
			if v.Secret != nil {
				needs(w.name, "Secret", v.Secret.SecretName)
			}
		}
		for _, c := range w.pod.Spec.Containers {
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s mounts volume %s, which is not there", w.name, m.Name)
				}
				delete(volumes, m.Name)
			}
			for _, e := range c.EnvFrom {
				needs(w.name, "Secret", e.SecretRef.Name)
			}
		}
		if len(volumes) > 0 {
			t.Errorf("%s mounts nothing of %v", w.name, volumes)
		}
	}
}

// TestSelectors: each Service, budget and policy is about pods that there are.
func TestSelectors(t *testing.T) {
	all := objects(t)
	budgets := map[string]bool{}
	for _, o := range all {
		var selector *metav1.LabelSelector
		switch o := o.(type) {
		case *corev1.Service:
			selector = &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
		case *policyv1.PodDisruptionBudget:
			selector = o.Spec.Selector
			budgets[o.Name] = true
		case *networkingv1.NetworkPolicy:
			selector = &o.Spec.PodSelector
		default:
			continue
		}
		if !slices.ContainsFunc(workloads(all), func(w workload) bool { return matches(t, selector, w.pod.Labels) }) {
			t.Errorf("%T %s is about no pods", o, o.(metav1.Object).GetName())
		}
	}
	for _, w := range workloads(all) {
		if !budgets[w.name] {
			t.Errorf("%s has no budget", w.name)
		}
	}
}

// TestPods: they get along without rights, and Services add nothing to their environment.
func TestPods(t *testing.T) {
	for _, w := range workloads(objects(t)) {
		s := w.pod.Spec
		if s.EnableServiceLinks == nil || *s.EnableServiceLinks || s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken {
			t.Errorf("%s gets variables of Services, or a token", w.name)
		}
		c := s.SecurityContext
		if c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot || c.RunAsUser == nil || *c.RunAsUser == 0 ||
			c.SeccompProfile == nil || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: the security context of its pods is %+v", w.name, c)
		}
		for _, v := range s.Volumes {
			if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
				t.Errorf("%s: everybody may read secret %s", w.name, v.Name)
			}
		}
		for _, container := range s.Containers {
			c := container.SecurityContext
			if c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.ReadOnlyRootFilesystem == nil ||
				!*c.ReadOnlyRootFilesystem || c.Capabilities == nil || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s: the security context of %s is %+v", w.name, container.Name, c)
			}
		}
	}
}

func matches(t *testing.T, selector *metav1.LabelSelector, has map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(has))
}
