package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/commands"
	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/words"
)

// Migration is what docs/migrate.md says of a cloud: from the vendor's driver to this one, and back.
type Migration struct {
	Way
	Before, Move, Back []string
}

// leftOut are in the commands of a migration that are not run.
var leftOut = []struct{ Page, Why string }{
	{"make images ", "the nodes have the images"},
	{"delete statefulset/", "it is for readers who do not want to go back"},
}

// Migrate returns the migration to a cloud's driver.
func Migrate(root, cloud string) (Migration, error) {
	m := Migration{Way: Way{Document: "docs/migrate.md"}}
	page, err := os.ReadFile(filepath.Join(root, m.Document))
	if err != nil {
		return m, err
	}
	text := words.For(string(page), cloud)
	m.Kustomization = commands.Kustomization(text)
	for heading, to := range map[string]*[]string{"## Before": &m.Before, "## The move": &m.Move, "## Going back": &m.Back} {
		section, err := commands.Section(text, heading)
		if err != nil {
			return m, fmt.Errorf("%s: %w", m.Document, err)
		}
		for _, block := range commands.Blocks(section) {
			if block == m.Kustomization {
				continue
			}
			some, err := commands.Statements(block)
			if err != nil {
				return m, fmt.Errorf("%s: %w in:\n%s", m.Document, err, block)
			}
			*to = append(*to, slices.DeleteFunc(some, isLeftOut)...)
		}
	}
	return m, nil
}

func isLeftOut(command string) bool {
	for _, l := range leftOut {
		if strings.Contains(command, l.Page) {
			return true
		}
	}
	return false
}

// Folder makes what a reader has when the commands begin, with the folder move led to the emulated account.
func (m Migration) Folder(ctx context.Context, root, cloud, dir string) error {
	if err := m.Way.Folder(ctx, root, cloud, dir); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, "emulated"), filepath.Join(dir, "move"))
}
