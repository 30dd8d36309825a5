package words

import (
	"slices"
	"strings"
	"testing"
)

func TestFor(t *testing.T) {
	const text = "| word | A | B |\n|---|---|---|\n| `CLOUD` | `a` | `b` |\n| `NAMESPACE` | `kube-system` | its own |\n\n" +
		"    kubectl -n NAMESPACE get pods CLOUD-x\n    - y    # a only, where z\n    - z  # b only\n"
	if got, want := Clouds(text), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("Clouds = %q, want %q", got, want)
	}
	for cloud, want := range map[string]string{
		"a": "    kubectl -n kube-system get pods a-x\n    - y    # a only, where z\n",
		"b": "    kubectl -n NAMESPACE get pods b-x\n    - z  # b only\n",
		"c": "    kubectl -n NAMESPACE get pods CLOUD-x\n    - y    # a only, where z\n    - z  # b only\n",
	} {
		if got := For(text, cloud); !strings.HasSuffix(got, "|\n\n"+want) {
			t.Errorf("For %s = %q, want %q at its end", cloud, got, want)
		}
	}
	if got := Clouds(strings.Replace(text, "`b`", "its own", 1)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("Clouds with an open column = %q, want a alone", got)
	}
	if got := For("no table of CLOUD\n", "a"); got != "no table of CLOUD\n" || Clouds(got) != nil {
		t.Errorf("For without a table = %q", got)
	}
}
