package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Load reads a YAML file: one mapping from keys, written flat, to values. Types are
// strict: "2" in quotes is not a number. All that is wrong with it is in one error,
// which names the file and the lines.
func Load(path string) (Values, error) { return topologies.Load(path) }

// Load reads a YAML file; see the function of that name.
func (t *Table) Load(path string) (Values, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Values{}, fmt.Errorf("reading the configuration: %w", err)
	}
	root, err := document(data)
	if err != nil {
		return Values{}, fmt.Errorf("configuration file %s: %w", path, err)
	}
	set := map[string]entry{}
	lines := map[string]int{}
	var errs []error
	refuse := func(line int, err error) {
		errs = append(errs, fmt.Errorf("configuration file %s, line %d: %w", path, line, err))
	}
	for i := 0; i < len(root); i += 2 {
		key, node := root[i], root[i+1]
		name := key.Value
		if key.Kind != yaml.ScalarNode || name == "" {
			refuse(key.Line, errors.New("a key must be a plain name"))
			continue
		}
		if first, twice := lines[name]; twice {
			refuse(key.Line, fmt.Errorf("%s is set twice, first in line %d", name, first))
			continue
		}
		lines[name] = key.Line
		v, err := t.nodeValue(name, node)
		if err != nil {
			refuse(key.Line, err)
			continue
		}
		set[name] = entry{v, path}
	}
	return t.layer(set, errs)
}

// document returns the keys and values of the only mapping in data.
func document(data []byte) ([]*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := dec.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, errors.New("must hold a single YAML document")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("must be a YAML mapping, a line for each key: value")
	}
	return root.Content, nil
}

func (t *Table) nodeValue(name string, node *yaml.Node) (any, error) {
	if isUser(name) {
		var v any
		if err := node.Decode(&v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return v, nil
	}
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	k, ok := t.byName[name]
	switch {
	case node.Kind == yaml.MappingNode && ok && k.Map:
		return k.encoded(node)
	case node.Kind == yaml.MappingNode:
		return nil, fmt.Errorf("%s holds a mapping; keys are written flat, as %s: %v", name, t.keys[0].Name, t.keys[0].Default)
	case !ok:
		return nil, t.unknown(name)
	case node.Kind == yaml.SequenceNode && k.List:
		return k.joined(node)
	case node.Kind != yaml.ScalarNode:
		return nil, fmt.Errorf("%s is a list, must be %s", name, k.Range())
	}
	switch tag := node.ShortTag(); {
	case tag == "!!str", tag == "!!int" && k.List:
		return node.Value, k.accept(node.Value)
	case tag == "!!null":
		return nil, k.refuse(nil)
	case tag == "!!int" && k.Type == Int, tag == "!!bool" && k.Type == Bool:
		return k.parse(strings.ToLower(node.Value))
	}
	return nil, fmt.Errorf("%s is %s, must be %s", name, node.Value, k.Range())
}

// joined returns the value of a List key that is a YAML list.
func (k *Key) joined(node *yaml.Node) (any, error) {
	var texts []string
	for _, n := range node.Content {
		if n.Kind != yaml.ScalarNode || strings.Contains(n.Value, ",") {
			return nil, fmt.Errorf("%s, line %d: it must be a list of texts without commas", k.Name, n.Line)
		}
		texts = append(texts, n.Value)
	}
	text := strings.Join(texts, ",")
	return text, k.accept(text)
}

// encoded returns the value of a Map key that is a YAML mapping.
func (k *Key) encoded(node *yaml.Node) (any, error) {
	var v any
	if err := node.Decode(&v); err != nil {
		return nil, fmt.Errorf("%s: %w", k.Name, err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: it must hold names and values that JSON has, in quotes if they are texts: %w", k.Name, err)
	}
	return string(text), k.accept(string(text))
}

// Read returns the values of a file, if path is not empty, with assignments on top.
func Read(path string, assignments []string) (Values, error) {
	var file Values
	if path != "" {
		var err error
		if file, err = Load(path); err != nil {
			return Values{}, err
		}
	}
	flags, err := ParseAssignments(assignments)
	if err != nil {
		return Values{}, err
	}
	return Merge(file, flags), nil
}

// ParseAssignments returns the layer of -c flags: key=value, each key once. The
// values of user keys are read as YAML. All that is wrong is in one error.
func ParseAssignments(assignments []string) (Values, error) {
	return topologies.ParseAssignments(assignments)
}

// ParseAssignments returns the layer of -c flags; see the function of that name.
func (t *Table) ParseAssignments(assignments []string) (Values, error) {
	set := map[string]entry{}
	var errs []error
	for _, a := range assignments {
		name, v, err := t.assignment(a)
		if _, twice := set[name]; err == nil && twice {
			err = fmt.Errorf("%s is set twice", name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("-c %s: %w", a, err))
			continue
		}
		set[name] = entry{v, FromFlag}
	}
	return t.layer(set, errs)
}

func (t *Table) assignment(a string) (name string, v any, err error) {
	name, text, ok := strings.Cut(a, "=")
	if !ok || name == "" {
		return name, nil, errors.New("must be key=value")
	}
	if isUser(name) {
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return name, nil, err
		}
		return name, v, nil
	}
	k, ok := t.byName[name]
	if !ok {
		return name, nil, t.unknown(name)
	}
	v, err = k.parse(text)
	return name, v, err
}

// parse reads a value from its one canonical text.
func (k *Key) parse(text string) (any, error) {
	switch k.Type {
	case Bool:
		if text == "true" || text == "false" {
			return text == "true", nil
		}
	case Int:
		if n, err := strconv.Atoi(text); err == nil && strconv.Itoa(n) == text {
			return n, k.accept(n)
		}
	case String:
		return text, k.accept(text)
	}
	return nil, fmt.Errorf("%s is %q, must be %s", k.Name, text, k.Range())
}

func checkStore(v string) error {
	if v == "" {
		return nil
	}
	if strings.HasPrefix(v, "s3:") {
		_, _, err := StoreBucket(v)
		return err
	}
	_, err := StoreFolder(v)
	return err
}

// StoreBucket returns the bucket that a checkpoint store's s3:// URL names, and the
// prefix in it, which may be empty.
func StoreBucket(storeURL string) (bucket, prefix string, err error) {
	u, err := url.Parse(storeURL)
	if err != nil {
		return "", "", fmt.Errorf("checkpoint store %q: %w", storeURL, err)
	}
	if u.Scheme != "s3" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", "", fmt.Errorf("checkpoint store %q: must be s3://BUCKET or s3://BUCKET/PREFIX", storeURL)
	}
	return u.Host, strings.Trim(u.Path, "/"), nil
}

// StoreFolder returns the folder that a checkpoint store's file:// URL names.
func StoreFolder(storeURL string) (string, error) {
	const want = "must be file:// and an absolute path"
	u, err := url.Parse(storeURL)
	if err != nil {
		return "", fmt.Errorf("checkpoint store %q: %w", storeURL, err)
	}
	if u.Scheme != "file" {
		return "", fmt.Errorf("checkpoint store %q: must begin with file:// or s3://", storeURL)
	}
	path := filepath.FromSlash(u.Path)
	if runtime.GOOS == "windows" { // file:///C:/folder
		path = strings.TrimPrefix(path, `\`)
	}
	if u.Host != "" || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(path) {
		return "", fmt.Errorf("checkpoint store %q: %s", storeURL, want)
	}
	return filepath.Clean(path), nil
}
