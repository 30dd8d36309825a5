// Command notices prints the licences of everything that is compiled into a program: the texts, which go into the image
// with it, or with -list one line for each module. It fails where a licence is missing, or is none of those that the
// project accepts.
//
//	go run ./build/notices [-list] ./cmd/controller
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// accepted are the licences that allow the programs to be given away under Apache-2.0, each with words that only its text
// has. The licences of Go's own modules are BSD-3-Clause.
var accepted = []struct{ name, words string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License"},
	{"MIT", "Permission is hereby granted, free of charge"},
	{"BSD-3-Clause", "Neither the name of"},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software"},
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([-._].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice([-._].*)?$`)
)

// module is one module with its licence files and notices, by path below its folder.
type module struct {
	name, dir string
	texts     map[string]string
	licences  map[string]bool
}

func main() {
	list := flag.Bool("list", false, "print one line for each module")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *list, flag.Args()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, list bool, programs ...string) error {
	modules, err := linked(ctx, programs)
	if err != nil {
		return err
	}
	var problems error
	for _, m := range modules {
		problems = errors.Join(problems, m.check())
	}
	if problems != nil {
		return problems
	}
	for _, m := range modules {
		if list {
			_, err = fmt.Fprintf(out, "%s\t%s\n", m.name, strings.Join(slices.Sorted(maps.Keys(m.licences)), ", "))
		} else {
			err = m.print(out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linked returns the modules of all packages that the programs are made of, and Go's standard library, each with the
// licences in the folders of these packages and above. The project's own module is left out.
func linked(ctx context.Context, programs []string) ([]*module, error) {
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}|{{.Dir}}|{{$.Dir}}{{end}}{{end}}`
	text, err := goCommand(ctx, append([]string{"list", "-deps", "-f", format}, programs...)...)
	if err != nil {
		return nil, err
	}
	root, err := goCommand(ctx, "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(root), "\n")
	modules := map[string]*module{}
	text += fmt.Sprintf("Go %s|%s|%s\n", version, goroot, goroot)
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.TrimSpace(line), "|")
		if len(parts) != 3 {
			continue
		}
		m := modules[parts[0]]
		if m == nil {
			m = &module{name: parts[0], dir: parts[1], texts: map[string]string{}, licences: map[string]bool{}}
			modules[parts[0]] = m
		}
		if err := m.read(parts[2]); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(modules), func(a, b *module) int { return strings.Compare(a.name, b.name) }), nil
}

func goCommand(ctx context.Context, args ...string) (string, error) {
	var words strings.Builder
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &words)
	}
	return string(out), nil
}

// read takes in the files of a folder and of those above it in the module.
func (m *module) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) && !noticeFile.MatchString(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(m.dir, path)
		if err != nil {
			return err
		}
		m.texts[name] = string(text)
	}
	if dir == m.dir || !strings.HasPrefix(dir, m.dir) {
		return nil
	}
	return m.read(filepath.Dir(dir))
}

// check finds out the licences, and refuses a module that has none, or another one than those that are accepted.
func (m *module) check() error {
	var problems error
	for name, text := range m.texts {
		if !licenceFile.MatchString(filepath.Base(name)) {
			continue
		}
		licence := licenceOf(text)
		if licence == "" {
			problems = errors.Join(problems, fmt.Errorf("%s: %s is no licence that is accepted", m.name, name))
			continue
		}
		m.licences[licence] = true
	}
	if problems == nil && len(m.licences) == 0 {
		return fmt.Errorf("%s: there is no licence in %s", m.name, m.dir)
	}
	return problems
}

// licenceOf returns the name of the accepted licence that a text is, or nothing.
func licenceOf(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	for _, a := range accepted {
		if strings.Contains(text, strings.ToLower(a.words)) {
			return a.name
		}
	}
	return ""
}

func (m *module) print(out io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(m.texts)) {
		line := strings.Repeat("=", 80)
		if _, err := fmt.Fprintf(out, "%s\n%s: %s\n%s\n\n%s\n", line, m.name, name, line, strings.TrimRight(m.texts[name], "\n")); err != nil {
			return err
		}
	}
	return nil
}
