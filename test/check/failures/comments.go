package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// claim is a test that names a row in a comment.
type claim struct {
	row string
	test
	place string // file and line
}

// naming is how a comment line names rows: their ids and a colon at its beginning, such as "// C1, C17: what it proves".
var naming = regexp.MustCompile(`^// ([FACEPL][0-9]+(?:(?:,| and|, and) [FACEPL][0-9]+)*):`)

// claims reads the comments above and inside of the tests below root. A line that names a row anywhere else is an error,
// because no test would be found by it.
func claims(root string) ([]claim, error) {
	var found []claim
	for _, folder := range []string{"cmd", "internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, "_test.go") {
				return err
			}
			rel, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			more, err := claimsOf(file, filepath.ToSlash(rel))
			found = append(found, more...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// claimsOf reads one file; name is its path in the repository.
func claimsOf(file, name string) ([]claim, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []claim
	for _, group := range parsed.Comments {
		for _, line := range group.List {
			named := naming.FindStringSubmatch(line.Text)
			if named == nil {
				continue
			}
			place := fmt.Sprintf("%s:%d", name, set.Position(line.Pos()).Line)
			function := testAt(parsed, line.Pos())
			if function == "" {
				return nil, fmt.Errorf("%s names %s, and is neither above nor inside of a test", place, named[1])
			}
			for _, id := range rowID.FindAllString(named[1], -1) {
				found = append(found, claim{id, test{path.Dir(name), function}, place})
			}
		}
	}
	return found, nil
}

// testAt returns the name of the test function that has the position in its body or in its doc comment.
func testAt(file *ast.File, at token.Pos) string {
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok || function.Recv != nil || !testFunction.MatchString(function.Name.Name) {
			continue
		}
		begin := function.Pos()
		if function.Doc != nil {
			begin = function.Doc.Pos()
		}
		if begin <= at && at < function.End() {
			return function.Name.Name
		}
	}
	return ""
}

var testFunction = regexp.MustCompile(`^(Test|Fuzz)[A-Z0-9]`)
