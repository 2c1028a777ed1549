package config

import (
	"fmt"
	"strings"
)

// Markdown returns the reference page of all keys.
func Markdown() string {
	var sb strings.Builder
	sb.WriteString(`# Configuration

<!-- Generated from engine/config/table.go by go generate; do not edit. -->

Values are merged in this order, each over the one before: the default, the configuration file
(` + "`--config FILE`" + `, YAML, one flat ` + "`key: value`" + ` a line), what the topology's code sets, and
` + "`-c key=value`" + ` on the command line. A value must be of the key's type: ` + "`\"2\"`" + ` is not a number.
A key that is not in this table is refused. Keys that begin with ` + "`user.`" + ` are yours and hold anything;
after ` + "`-c`" + ` their value is read as YAML.

A value of scope *topology* holds for the topology as a whole, of scope *region* for each connected part of
it by itself, of scope *task* for each task by itself.

`)
	topologies.WriteMarkdown(&sb)
	return sb.String()
}

// WriteMarkdown writes the keys as a table for a reference page.
func (t *Table) WriteMarkdown(sb *strings.Builder) {
	sb.WriteString(`| key | type | default | values | scope | meaning |
| --- | --- | --- | --- | --- | --- |
`)
	for _, k := range t.keys {
		def := fmt.Sprintf("`%v`", k.Default)
		if k.Default == "" {
			def = "empty"
		}
		fmt.Fprintf(sb, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, k.Type, def, k.Range(), k.Scope, k.Meaning)
	}
}
