// Package commands finds the kubectl commands of the documents, so that a test can send each to an API server.
package commands

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/words"
)

// Command is one kubectl command of a document.
type Command struct {
	Document string
	// Cloud is the one whose words the command has, on a page that is for several.
	Cloud string
	// Args are the arguments of the program, as a shell makes them.
	Args []string
}

func (c Command) String() string {
	where := c.Document
	if c.Cloud != "" {
		where += " for " + c.Cloud
	}
	return where + ": kubectl " + strings.Join(c.Args, " ")
}

var (
	// block is code, with the blank lines inside and behind it.
	block = regexp.MustCompile(`(?m)(?:^ {4,}\S.*\n(?:[ \t]*\n)*)+`)
	// first is a line that begins with a command of kubectl, as such or in a loop, or of Helm.
	first = regexp.MustCompile(`(?m)^ *(?:kubectl|helm|for .*\$\(kubectl) `)
	// inline is a command in a sentence.
	inline = regexp.MustCompile("`((?:kubectl|helm) [^`]+)`")
	// sentence makes a script of a command in a sentence: a table needs a backslash before a pipe.
	sentence = strings.NewReplacer("\n", " ", `\|`, "|")
)

// Documents are the files below a repository's folder that tell users what to do.
func Documents(root string) ([]string, error) {
	found := []string{filepath.Join(root, "README.md"), filepath.Join(root, "deploy/charts/cloudblock-csi/README.md")}
	for _, pattern := range []string{"docs/*.md", "docs/backends/*.md", "docs/contributing/*.md"} {
		some, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// All returns kubectl's commands of all documents, in order.
func All(root string) ([]Command, error) { return all(root, "kubectl") }

// Helm returns Helm's.
func Helm(root string) ([]Command, error) { return all(root, "helm") }

func all(root, program string) ([]Command, error) {
	documents, err := Documents(root)
	if err != nil {
		return nil, err
	}
	var all []Command
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		document, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		some, err := forEach(document, string(text), program)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// forEach returns a document's commands, those of a page for several clouds once for each.
func forEach(document, text, program string) ([]Command, error) {
	clouds := words.Clouds(text)
	if len(clouds) == 0 {
		return in(document, text, program)
	}
	var all []Command
	for _, cloud := range clouds {
		some, err := in(document, words.For(text, cloud), program)
		if err != nil {
			return nil, err
		}
		for _, c := range some {
			c.Cloud = cloud
			all = append(all, c)
		}
	}
	return all, nil
}

// In returns kubectl's commands of one document: those of its blocks of code, and then those in its sentences.
func In(document, text string) ([]Command, error) { return in(document, text, "kubectl") }

func in(document, text, program string) ([]Command, error) {
	var scripts []string
	for _, b := range block.FindAllString(text, -1) {
		if first.MatchString(b) {
			scripts = append(scripts, b)
		}
	}
	for _, m := range inline.FindAllStringSubmatch(text, -1) {
		scripts = append(scripts, sentence.Replace(m[1]))
	}
	var all []Command
	for _, script := range scripts {
		some, err := parse(script, program)
		if err != nil {
			return nil, fmt.Errorf("%s: %w in:\n%s", document, err, script)
		}
		for _, args := range some {
			all = append(all, Command{Document: document, Args: args})
		}
	}
	return all, nil
}

// parse returns the arguments of each call of a program in a shell's script, also in pipes, loops and substitutions. The value of a
// variable is its name, such as $pod.
func parse(script, program string) ([][]string, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, err
	}
	config := &expand.Config{Env: expand.FuncEnviron(func(name string) string {
		if name == "IFS" {
			return "" // the shell's own
		}
		return "$" + name
	})}
	// What stands for another command's output is no argument in any document.
	config.CmdSubst = func(io.Writer, *syntax.CmdSubst) error { return nil }
	var all [][]string
	syntax.Walk(file, func(node syntax.Node) bool {
		call, is := node.(*syntax.CallExpr)
		if !is || len(call.Args) == 0 || call.Args[0].Lit() != program {
			return true
		}
		var args []string
		if args, err = expand.Fields(config, call.Args[1:]...); err == nil {
			all = append(all, args)
		}
		return err == nil
	})
	return all, err
}

// verb returns where the verb is, behind flags of all commands.
func (c Command) verb() int {
	for i := 0; i < len(c.Args); i++ {
		switch {
		case c.Args[i] == "-n" || c.Args[i] == "--namespace":
			i++
		case !strings.HasPrefix(c.Args[i], "-"):
			return i
		}
	}
	return -1
}

// Verb is what the command does, such as `get` or `rollout status`.
func (c Command) Verb() string {
	i := c.verb()
	switch {
	case i < 0:
		return ""
	case slices.Contains([]string{"rollout", "set"}, c.Args[i]) && i+1 < len(c.Args):
		return c.Args[i] + " " + c.Args[i+1]
	}
	return c.Args[i]
}

// harmless are the flags that keep a verb from changing anything that lasts, and from waiting long.
var harmless = map[string][]string{
	"get": nil, "exec": nil, "logs": nil, "describe": nil, "rollout history": nil, "kustomize": nil,
	"wait": {"--timeout=1s"}, "rollout status": {"--timeout=1m"},
	"delete": {"--dry-run=server", "--ignore-not-found", "--wait=false"},
	"apply":  {"--dry-run=server"}, "create": {"--dry-run=server"}, "patch": {"--dry-run=server"}, "scale": {"--dry-run=server"},
	"label": {"--dry-run=server"}, "annotate": {"--dry-run=server"}, "taint": {"--dry-run=server"}, "set image": {"--dry-run=server"},
	"rollout undo": {"--dry-run=server"}, "drain": {"--dry-run=server"}, "cordon": {"--dry-run=server"}, "uncordon": {"--dry-run=server"},
}

// Harmless returns the arguments with which the command changes nothing that lasts.
func (c Command) Harmless() ([]string, error) {
	if c.Verb() == "rollout restart" { // it has no dry run; its arguments are those of rollout status
		c.Args = slices.Clone(c.Args)
		c.Args[c.verb()+1] = "status"
	}
	flags, known := harmless[c.Verb()]
	if !known {
		return nil, fmt.Errorf("%s: it is not known how to run %q without a change", c, c.Verb())
	}
	at := slices.Index(c.Args, "--")
	if at < 0 {
		at = len(c.Args)
	}
	return slices.Insert(slices.Clone(c.Args), at, flags...), nil
}

// Placeholders are the words that users replace in all documents, with what each is.
var Placeholders = map[string]string{
	"NODE": "a node", "NAME": "a PersistentVolume, and the user of a registry", "V": "a PersistentVolume", "NAMESPACE": "a vendor driver's namespace",
	"CLAIM": "a PersistentVolumeClaim", "POD": "a pod", "SNAPSHOT": "a VolumeSnapshot",
	"D": "a disk of a cloud", "ZONE": "a zone",
	"TOKEN-FILE": "a file", "PASSWORD": "any word", "TAG": "any word", "RELEASE": "a release of Helm", "$pod": "a pod of the driver",
}

// placeholder is a word that users replace, in capitals, or a variable.
var placeholder = regexp.MustCompile(`\$[a-z]+|\b[A-Z][A-Z-]*\b`)

// Fill replaces the placeholders of the command. One that no value is known for is an error.
func (c Command) Fill(values map[string]string) (Command, error) {
	var unknown []string
	args := slices.Clone(c.Args)
	for i, arg := range args {
		if len(arg) == 2 && arg[0] == '-' {
			continue // a flag, such as -A
		}
		var out strings.Builder
		last := 0
		for _, at := range placeholder.FindAllStringIndex(arg, -1) {
			word := arg[at[0]:at[1]]
			if rest := arg[at[1]:]; strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "=") {
				continue // the heading of a column, the name of a setting
			}
			value, known := values[word]
			if !known {
				unknown = append(unknown, word)
			}
			out.WriteString(arg[last:at[0]] + value)
			last = at[1]
		}
		args[i] = out.String() + arg[last:]
	}
	if len(unknown) > 0 {
		return c, fmt.Errorf("%s: no value is known for %s", c, strings.Join(unknown, ", "))
	}
	return Command{Document: c.Document, Cloud: c.Cloud, Args: args}, nil
}

// Kustomization returns the first kustomization that a document shows, as its file, or nothing.
func Kustomization(text string) string {
	for _, b := range Blocks(text) {
		if strings.Contains(b, "kind: Kustomization\n") {
			return b
		}
	}
	return ""
}

// Blocks returns the blocks of code of a document, without their indentation.
func Blocks(text string) []string {
	var all []string
	for _, b := range block.FindAllString(text, -1) {
		indent := len(b) - len(strings.TrimLeft(b, " "))
		var out strings.Builder
		for line := range strings.Lines(b) {
			out.WriteString(line[min(indent, len(line)-1):])
		}
		all = append(all, strings.TrimRight(out.String(), "\n")+"\n")
	}
	return all
}

// Section returns what is between a heading and the next one of any level.
func Section(text, heading string) (string, error) {
	_, rest, found := strings.Cut(text, "\n"+heading+"\n")
	if !found {
		return "", fmt.Errorf("there is no heading %q", heading)
	}
	if end := strings.Index(rest, "\n#"); end >= 0 {
		rest = rest[:end+1]
	}
	return rest, nil
}

// Statements splits a shell's script, without its comments.
func Statements(script string) ([]string, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, s := range file.Stmts {
		all = append(all, script[s.Pos().Offset():s.End().Offset()])
	}
	return all, nil
}
