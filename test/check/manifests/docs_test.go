package manifests_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/words"
)

const documents = "../../../docs"

// indented is a block of code, with the blank lines inside it.
var indented = regexp.MustCompile(`(?m)(?:^ {4,}\S.*\n(?:[ \t]*\n(?: {4,}\S))?)+`)

// resourceFile is a file that a kustomization has next to it.
var resourceFile = regexp.MustCompile(`(?m)^- ([a-z]+\.yaml)$`)

// shown is a kustomization of a document, and the block behind it, which is the file that it names.
type shown struct{ text, file string }

// kustomizations are those that the documents show, by document.
func kustomizations(t *testing.T) map[string][]shown {
	t.Helper()
	found := map[string][]shown{}
	err := filepath.WalkDir(documents, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		page, err := os.ReadFile(path)
		texts := []string{string(page)}
		if clouds := words.Clouds(texts[0]); len(clouds) > 0 {
			texts = nil
			for _, cloud := range clouds {
				texts = append(texts, words.For(string(page), cloud))
			}
		}
		for _, text := range texts {
			blocks := append(indented.FindAllString(text, -1), "")
			for i, block := range blocks[:len(blocks)-1] {
				if strings.Contains(block, "kind: Kustomization\n") {
					found[path] = append(found[path], shown{dedent(block), dedent(blocks[i+1])})
				}
			}
		}
		return err
	})
	must(t, err)
	return found
}

func dedent(block string) string {
	indent := len(block) - len(strings.TrimLeft(block, " "))
	var out strings.Builder
	for line := range strings.Lines(block) {
		out.WriteString(line[min(indent, len(line)-1):])
	}
	return out.String()
}

// TestKustomizationsOfTheDocuments: each renders, with images that a reader has built, the API has what comes out, and the
// programs take the settings.
func TestKustomizationsOfTheDocuments(t *testing.T) {
	found := kustomizations(t)
	if len(found[filepath.Join(documents, "customize.md")]) < 8 || len(found) < 3 {
		t.Fatalf("found only %v", found)
	}
	bin := programs(t)
	for document, all := range found {
		for _, k := range all {
			o := k.objects(t)
			// What shows one thing leaves the ConfigMap to the reader's own; a move has no other.
			if o.settings == nil && filepath.Base(document) != "migrate.md" {
				o.settings = identified
			}
			for name, pod := range o.pods {
				for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
					if strings.HasSuffix(c.Image, ":unreleased") {
						t.Errorf("%s: a reader gets %s of %s, which is not published, from:\n%s", document, c.Image, name, k.text)
					}
				}
				for _, c := range pod.Containers {
					takes(t, bin, document+", "+name, c, o.settings)
				}
			}
		}
	}
}

// objects renders a kustomization as if it stood next to a copy of the repository.
func (k shown) objects(t *testing.T) objects {
	t.Helper()
	dir := t.TempDir()
	up := relative(t, dir, "../../..")
	files := map[string]string{"kustomization.yaml": strings.NewReplacer("../deploy/", up+"/deploy/", "../bin/images", "images").Replace(k.text)}
	if named := resourceFile.FindStringSubmatch(k.text); named != nil {
		files[named[1]] = k.file
	}
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	nameImages(t, dir)
	return parse(t, build(t, dir))
}

// identified are the settings that each cloud needs.
var identified = map[string]string{"CLUSTER_ID": "test"}

// takes fails a test whose program refuses its arguments or settings.
func takes(t *testing.T, bin, where string, c corev1.Container, settings map[string]string) {
	t.Helper()
	program := filepath.Join(bin, c.Name)
	if _, err := os.Stat(program); err != nil {
		return // a sidecar
	}
	cmd := exec.CommandContext(t.Context(), program, append(expand(c), planted)...)
	for key, value := range settings {
		cmd.Env = append(cmd.Env, "CLOUDBLOCK_FLAG_"+key+"="+value)
	}
	for _, e := range c.Env { // of two with one name the last wins, as in a pod
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	mistakes := mistakesOf(t, cmd)
	if len(mistakes) != 1 || !strings.Contains(mistakes[0], strings.TrimLeft(planted, "-")) {
		t.Errorf("%s: %s refuses its arguments:\n%s", where, c.Name, strings.Join(mistakes, "\n"))
	}
	if slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--version") }) {
		t.Errorf("%s, %s: --version hides mistakes", where, c.Name)
	}
}
