package driver

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
)

// settingPrefix is the prefix of the environment variables that set flags: CLOUDBLOCK_FLAG_CLUSTER_ID sets --cluster-id
// (docs/contributing/decisions/deployment.md, 29).
const settingPrefix = "CLOUDBLOCK_FLAG_"

// withoutVariable are the flags that no variable sets. --node-id differs between nodes, but the variables do not.
var withoutVariable = []string{"node-id", "version"}

// Environment is the environment of a process, as os.Environ returns it.
type Environment []string

// Get returns the value of a variable; "" if it is not set.
func (e Environment) Get(name string) string {
	for _, entry := range e {
		if key, value, _ := strings.Cut(entry, "="); key == name {
			return value
		}
	}
	return ""
}

// Settings are the flags of a program that variables can set.
type Settings struct {
	flags map[string]*flag.Flag
	// others are the settings of the other program only. Both programs have the same variables, so each ignores those of the other.
	others []string
}

// SettingsOf returns the settings among the flags that are registered so far.
func SettingsOf(fs *flag.FlagSet, others ...string) Settings {
	s := Settings{flags: map[string]*flag.Flag{}, others: others}
	fs.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(withoutVariable, f.Name) {
			s.flags[f.Name] = f
		}
	})
	return s
}

// Read sets the flags that the command line, which was parsed before, has not set. An empty variable sets nothing. Read reports all
// mistakes.
func (s Settings) Read(fs *flag.FlagSet, environ Environment) error {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var mistakes []error
	for _, entry := range environ {
		variable, value, _ := strings.Cut(entry, "=")
		key, found := strings.CutPrefix(variable, settingPrefix)
		if !found {
			continue
		}
		name := strings.ToLower(strings.ReplaceAll(key, "_", "-"))
		f, known := s.flags[name]
		switch {
		case key != strings.ToUpper(key), !known && !slices.Contains(s.others, name):
			mistakes = append(mistakes, fmt.Errorf("environment variable %s: it sets no flag", variable))
		case !known || given[name] || value == "":
		default:
			if err := setAll(f, value); err != nil {
				mistakes = append(mistakes, fmt.Errorf("environment variable %s=%q: %w", variable, value, err))
			}
		}
	}
	return errors.Join(mistakes...)
}

// setAll sets a flag. It sets a repeatable flag to each part of a comma-separated list.
func setAll(f *flag.Flag, value string) error {
	if _, repeats := f.Value.(*list); !repeats {
		return f.Value.Set(value)
	}
	for part := range strings.SplitSeq(value, ",") {
		if err := f.Value.Set(part); err != nil {
			return err
		}
	}
	return nil
}

// list is a flag that can be repeated.
type list []string

// List returns a flag that appends each of its values to a variable.
func List(to *[]string) flag.Value { return (*list)(to) }

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}
