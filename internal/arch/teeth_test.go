package arch

import (
	"fmt"
	"strings"
	"testing"
)

// violations are small files, each breaking one rule in one place.
var violations = []struct {
	rule, path, text string
	want             string // part of the only problem; "" if there is none
}{
	{"layers", "tuple/a.go", `package tuple; import _ "github.com/isobar-io/isobar/txn"`, "tuple must not import txn"},
	{"layers", "barrier/a.go", `package barrier; import _ "github.com/isobar-io/isobar/txn/protocol"`, "must not import txn/protocol"},
	{"layers", "checkpoint/a.go", `package checkpoint; import _ "github.com/isobar-io/isobar/checkpoint/filestore"`, "must not import checkpoint/filestore"},
	{"layers", "spout/file/a.go", `package file; import _ "github.com/isobar-io/isobar/engine"`, "must not import engine"},
	{"layers", "spout/file/a.go", `package file; import _ "github.com/isobar-io/isobar/bolt"`, "must not import bolt"},
	{"layers", "engine/plan/a.go", `package plan; import _ "github.com/isobar-io/isobar/engine"`, "must not import engine"},
	{"layers", "engine/task/a.go", `package task; import _ "github.com/isobar-io/isobar/checkpoint/pebblestate"`, "must not import checkpoint/pebblestate"},
	{"layers", "engine/app/a.go", `package app; import _ "github.com/isobar-io/isobar/checkpoint/pebblestate"`, ""},
	{"layers", "engine/a_test.go", `package engine; import _ "github.com/isobar-io/isobar/checkpoint/pebblestate"`, ""},
	{"layers", "compat/trident/a.go", `package trident; import _ "github.com/isobar-io/isobar/internal/kjv"`, "must not import internal/kjv"},
	{"layers", "stray/a.go", `package stray`, "is in no layer"},

	{"drivers", "tuple/a.go", `package tuple; import _ "github.com/cespare/xxhash/v2"`, "has no place"},
	{"drivers", "checkpoint/filestore/a.go", `package filestore; import _ "github.com/cockroachdb/pebble/v2/vfs"`, "only checkpoint/pebblestate, internal/bench may"},
	{"drivers", "checkpoint/pebblestate/a.go", `package pebblestate; import _ "github.com/cockroachdb/pebble/v2/vfs"`, ""},
	{"drivers", "engine/a.go", `package engine; import _ "github.com/spf13/cobra"`, "must not import github.com/spf13/cobra"},
	{"drivers", "engine/task/a.go", `package task; import _ "github.com/prometheus/client_golang/prometheus"`, "only engine/metrics may"},
	{"layers", "tuple/wire/a.go", `package wire; import _ "github.com/isobar-io/isobar/txn"`, "must not import txn"},
	{"drivers", "engine/a.go", `package engine; import _ "pgregory.net/rapid"`, "has no place"},
	{"drivers", "spout/spouttest/a.go", `package spouttest; import _ "pgregory.net/rapid"`, ""},
	{"drivers", "engine/a_test.go", `package engine; import _ "pgregory.net/rapid"`, ""},

	{"pure cores", "barrier/a.go", `package barrier; func f() { go f() }`, "starts no goroutine"},
	{"pure cores", "barrier/a.go", `package barrier; var c chan int`, "uses no channel"},
	{"pure cores", "barrier/a.go", `package barrier; func f() { c <- 1 }`, "uses no channel"},
	{"pure cores", "barrier/a.go", `package barrier; func f() { <-c }`, "uses no channel"},
	{"pure cores", "barrier/a.go", `package barrier; func f() { select {} }`, "uses no channel"},
	{"pure cores", "txn/protocol/a.go", `package protocol; import _ "sync"`, "must not import sync"},
	{"pure cores", "txn/protocol/a.go", `package protocol; import _ "math/rand/v2"`, "must not import math/rand/v2"},
	{"pure cores", "checkpoint/mover.go", `package checkpoint; import _ "context"`, "must not import context"},
	{"pure cores", "checkpoint/retention.go", `package checkpoint; import _ "os"`, "must not import os"},
	{"pure cores", "checkpoint/store.go", `package checkpoint; import _ "context"`, ""},
	{"pure cores", "engine/plan/a.go", `package plan; import "time"; var now = time.Now()`, "no use for time.Now"},
	{"pure cores", "engine/plan/a.go", `package plan; import clock "time"; var c = clock.NewTimer(1)`, "no use for time.NewTimer"},
	{"pure cores", "engine/plan/a.go", `package plan; import "time"; const pause = 3 * time.Second`, ""},

	{"goroutines", "txn/a.go", `package txn; func f() { go f() }`, "txn must not start a goroutine"},
	{"goroutines", "checkpoint/a.go", `package checkpoint; func f() { go f() }`, "checkpoint must not"},
	{"goroutines", "examples/a/a.go", `package main; func f() { go f() }`, "examples/a must not"},
	{"goroutines", "engine/config/a.go", `package config; func f() { go f() }`, "engine/config must not"},
	{"goroutines", "spout/file/a.go", `package file; func f() { go f() }`, ""},
	{"goroutines", "engine/task/a.go", `package task; func f() { go f() }`, ""},
	{"goroutines", "txn/a_test.go", `package txn; func f() { go f() }`, ""},

	{"sleep", "engine/a.go", `package engine; import "time"; func f() { time.Sleep(1) }`, "wait for the condition"},
	{"sleep", "engine/a_test.go", `package engine; import "time"; func f() { time.Sleep(1) }`, "wait for the condition"},
	{"sleep", "engine/a_test.go", `package engine; import ("time"; _ "testing/synctest"); func f() { time.Sleep(1) }`, ""},

	{"names", "engine/util/a.go", `package util`, "package util"},
	{"names", "engine/common/a_test.go", `package common_test`, "package common"},
	{"names", "engine/a.go", `package engine; type StateManager struct{}`, "type StateManager"},
	{"names", "engine/a.go", `package engine; func f() { type helper int }`, "type helper"},

	{"length", "engine/a.go", "package engine\n" + strings.Repeat("\n", 500), "501 lines"},
	{"length", "engine/a.go", "// long: one table\n\npackage engine\n" + strings.Repeat("\n", 500), ""},
	{"length", "engine/a.go", "package engine\n\n// f does it.\nfunc f() {" + strings.Repeat("\n", 70) + "}\n", "f has 71 lines"},
	{"length", "engine/a.go", "package engine\n\n// f does it.\n//\n// long: one table\nfunc f() {" + strings.Repeat("\n", 70) + "}\n", ""},
	{"length", "engine/a_test.go", "package engine\n\nfunc f() {" + strings.Repeat("\n", 70) + "}\n", ""},

	{"documentation", "txn/a.go", `package txn; func F() {}`, "exported F"},
	{"documentation", "txn/a.go", `package txn; func (t *T[K]) M() {}`, "exported M"},
	{"documentation", "txn/a.go", `package txn; type T struct{}`, "exported T"},
	{"documentation", "txn/a.go", "package txn\n\n// A group.\ntype (\n\tT int\n)\n", "exported T"},
	{"documentation", "txn/a.go", "package txn\n\nvar A, b = 1, 2", "exported A"},
	{"documentation", "txn/a.go", "package txn\n\n// These are.\nconst (\n\tA = 1\n\tB = 2\n)\n", ""},
	{"documentation", "txn/a.go", `package txn; func (t *hidden) M() {}`, ""},
	{"documentation", "txn/a.go", `package txn; func (e *E) Error() {}`, ""},
	{"documentation", "internal/sim/a.go", `package sim; func F() {}`, ""},

	{"places", "engine/a.go", "package engine // see /home" + "/somebody", "outside the repository"},
	{"places", "Makefile", "# for issue " + "12", "outside the repository"},
	{"places", "engine/a.go", "package engine // a home for objects", ""},
	{"put off", "engine/a.go", "package engine // TO" + "DO: later", "puts something off"},
	{"put off", "docs/a.md", "This is not yet implemented.", "puts something off"},
}

func TestEveryRuleHasTeeth(t *testing.T) {
	bitten := map[string]bool{}
	for i, v := range violations {
		t.Run(fmt.Sprintf("%d %s", i, v.rule), func(t *testing.T) {
			s, err := newSource(v.path, v.text)
			if err != nil {
				t.Fatal(err)
			}
			problems := ruleNamed(t, v.rule).problems(s)
			switch {
			case v.want == "" && len(problems) > 0:
				t.Errorf("%s is fine, but: %q", v.text, problems)
			case v.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], v.want)):
				t.Errorf("%s\nreported %q, want one problem with %q", v.text, problems, v.want)
			}
			bitten[v.rule] = bitten[v.rule] || v.want != ""
		})
	}
	for _, r := range rules {
		if !bitten[r.name] {
			t.Errorf("no violation shows that the rule %q works", r.name)
		}
	}
}

func ruleNamed(t *testing.T, name string) rule {
	t.Helper()
	for _, r := range rules {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("there is no rule %q", name)
	return rule{}
}

func TestPackageWithoutCommentIsFound(t *testing.T) {
	var tree []*source
	for name, text := range map[string]string{
		"a/a.go":      "package a\n",
		"a/a_test.go": "// Package a is commented in a test only.\npackage a\n",
		"b/b.go":      "package b\n",
		"b/doc.go":    "// Package b is commented.\npackage b\n",
	} {
		s, err := newSource(name, text)
		if err != nil {
			t.Fatal(err)
		}
		tree = append(tree, s)
	}
	got := packagesWithoutComment(tree)
	if len(got) != 1 || !strings.HasPrefix(got[0], "a:") {
		t.Errorf("packages without a comment: %q, want only a", got)
	}
}
