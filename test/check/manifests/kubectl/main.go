// Command kubectl is a kubectl over a folder with the objects of a cluster, for the tests of the plugin: kubectl DIR ARGUMENT...
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

func main() {
	if err := kubectl(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// kubectl answers from the objects in a folder, one file of JSON for each kind as the API server lists it. What it does not
// know is an error, so that a script which asks in another way fails.
func kubectl(dir string, args []string) error {
	var words []string
	options := map[string]string{}
	for len(args) > 0 {
		switch word := args[0]; {
		case word == "-n" || word == "-l" || word == "-o" || word == "-c":
			options[word] = args[1]
			args = args[1:]
		case word == "-A":
			options[word] = "true"
		case strings.HasPrefix(word, "--context="):
			options["--context"] = strings.TrimPrefix(word, "--context=")
		case word == "--":
			options["--"] = strings.Join(args[1:], " ")
			args = args[:1]
		case strings.HasPrefix(word, "-"):
			return fmt.Errorf("unknown flag: %s", word)
		default:
			words = append(words, word)
		}
		args = args[1:]
	}
	if context := options["--context"]; context != "" && context != "other" {
		return fmt.Errorf("error: context %q does not exist", context)
	}
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?") //nolint:staticcheck // its words
	}
	switch {
	case len(words) == 1 && words[0] == "version":
		return nil
	case len(words) == 2 && words[0] == "exec":
		return kubectlExec(dir, words[1], options)
	case len(words) >= 2 && words[0] == "get":
		return kubectlGet(dir, words[1:], options)
	}
	return fmt.Errorf("error: unknown command %q", words)
}

func kubectlGet(dir string, words []string, options map[string]string) error {
	kind := strings.TrimSuffix(words[0], "s") + "s"
	if kind == "storageclas"+"s" {
		kind = "storageclasses"
	}
	text, err := os.ReadFile(filepath.Join(dir, kind+".json"))
	if err != nil {
		return fmt.Errorf("Error from server (Forbidden): %s is forbidden: User \"dev\" cannot list resource %q", kind, kind) //nolint:staticcheck // its words
	}
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	var items []any
	for _, item := range list.Items {
		object := metadataOf(item)
		key, value, _ := strings.Cut(options["-l"], "=")
		here := options["-n"] == "" || options["-n"] == object.Namespace
		if here && (key == "" || object.Labels[key] == value) && (len(words) == 1 || object.Name == words[1]) {
			items = append(items, item)
		}
	}
	if len(words) == 2 {
		if len(items) == 0 {
			return fmt.Errorf("Error from server (NotFound): %s %q not found", kind, words[1]) //nolint:staticcheck // its words
		}
		if options["-o"] != "name" {
			return fmt.Errorf("error: unknown output %q", options["-o"])
		}
		fmt.Println(kind + "/" + words[1])
		return nil
	}
	source, is := strings.CutPrefix(options["-o"], "go-template=")
	if !is {
		return fmt.Errorf("error: unknown output %q", options["-o"])
	}
	t, err := template.New("output").Parse(source)
	if err != nil {
		return err
	}
	return t.Execute(os.Stdout, map[string]any{"kind": "List", "items": items})
}

func metadataOf(item map[string]any) (object metadata) {
	text, _ := json.Marshal(item["metadata"])
	_ = json.Unmarshal(text, &object)
	return object
}

type metadata struct {
	Name, Namespace string
	Labels          map[string]string
}

// kubectlExec answers what the program in a pod has printed. A pod without that does not answer.
func kubectlExec(dir, pod string, options map[string]string) error {
	const want = "/cloudblock-controller volumes --cloud local --local-pool=/var/lib/cloudblock-csi/pool --output "
	output, is := strings.CutPrefix(options["--"], want)
	if !is || options["-c"] != "controller" || options["-n"] != "cloudblock-local" {
		return fmt.Errorf("exec %q in %s, want %q", options["--"], options["-c"], want)
	}
	text, err := os.ReadFile(filepath.Join(dir, "volumes-"+pod+"."+output))
	if err != nil {
		return fmt.Errorf("error: unable to upgrade connection: container not found (%q)", options["-c"])
	}
	_, err = os.Stdout.Write(text)
	return err
}
