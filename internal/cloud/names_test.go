package cloud_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// cloudName is a rule and, written independently of it, the pattern that the cloud documents.
type cloudName struct {
	rule    cloud.NameRule
	pattern *regexp.Regexp
	banned  []string
}

var cloudNames = map[string]cloudName{
	"32 characters, both cases, no doubles": {
		rule:    cloud.NameRule{MinLen: 2, MaxLen: 32, Upper: true, Underscore: true, StartLetter: true, NoDoubles: true},
		pattern: regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{1,31}$`),
		banned:  []string{"--", "__"},
	},
	"64 lower-case characters": {
		rule:    cloud.NameRule{MinLen: 1, MaxLen: 64, StartLetter: true, EndAlnum: true},
		pattern: regexp.MustCompile(`^[a-z]([a-z0-9-]{0,62}[a-z0-9])?$`),
	},
	"63 lower-case characters with underscore": {
		rule:    cloud.NameRule{MinLen: 1, MaxLen: 63, Underscore: true, StartLetter: true, EndAlnum: true},
		pattern: regexp.MustCompile(`^[a-z]([-_a-z0-9]{0,61}[a-z0-9])?$`),
	},
}

func (c cloudName) allows(s string) bool {
	for _, b := range c.banned {
		if strings.Contains(s, b) {
			return false
		}
	}
	return c.pattern.MatchString(s)
}

var (
	short  = cloudNames["32 characters, both cases, no doubles"].rule
	medium = cloudNames["64 lower-case characters"].rule
	marked = cloudNames["63 lower-case characters with underscore"].rule
)

func TestNameRuleMap(t *testing.T) {
	const uuid = "pvc-6c4a4ee5-47e4-4e9f-8c1c-0d0a4f4f5a01"
	tests := map[string]struct {
		rule         cloud.NameRule
		prefix, name string
		want         string // a trailing '*' stands for the 16 characters of the hash
	}{
		"a legal name is unchanged":                               {medium, "", uuid, uuid},
		"the prefix stands before the name":                       {medium, "prod-", "pvc-1", "prod-pvc-1"},
		"a short uuid is unchanged where only 32 fit":             {short, "", "pvc-0123456789abcdef", "pvc-0123456789abcdef"},
		"a short uuid with a 12-byte prefix just fits":            {short, "production12", "pvc-abcdef0123456789", "production12pvc-abcdef0123456789"},
		"a long name is shortened and carries a hash":             {short, "", uuid, "pvc-6c4a4ee5-4-h*"},
		"upper case stays where it is allowed":                    {short, "", "Pvc-A_b", "Pvc-A_b"},
		"upper case is lowered elsewhere, with a hash":            {medium, "", "Pvc-A", "pvc-a-h*"},
		"an underscore becomes a hyphen, with a hash":             {medium, "", "a_b", "a-b-h*"},
		"an underscore stays where it is allowed":                 {marked, "", "a_b", "a_b"},
		"a run of illegal bytes becomes one hyphen":               {marked, "", "том / 1x", "v-1x-h*"},
		"a name of illegal bytes alone is still a name":           {marked, "", "том", "v-h*"},
		"the empty name is still a name":                          {marked, "", "", "v-h*"},
		"a name of marks alone is still a name":                   {short, "", "_-_", "v-h*"},
		"a leading digit gets a letter":                           {medium, "", "9lives", "v-9lives-h*"},
		"a trailing hyphen is not allowed at the end":             {medium, "", "abc-", "abc-h*"},
		"a trailing hyphen is allowed where the cloud says so":    {short, "", "abc-", "abc-"},
		"doubled hyphens are joined where they are forbidden":     {short, "", "a--b", "a-b-h*"},
		"doubled hyphens stay where they are allowed":             {medium, "", "a--b", "a--b"},
		"a name below the shortest length grows":                  {short, "", "a", "a-h*"},
		"a control character never reaches the cloud":             {short, "", "a\nb\x00", "a-b-h*"},
		"a name that looks hashed gets a hash of its own":         {medium, "", "a-h0123456789abcdef", "a-h0123456789abcdef-h*"},
		"a name with too few digits behind the mark is unchanged": {medium, "", "a-h0123456789abcde", "a-h0123456789abcde"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := tc.rule.Map(tc.prefix, tc.name)
			want := "^" + strings.Replace(regexp.QuoteMeta(tc.want), `\*`, "[0-9a-v]{16}", 1) + "$"
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("Map(%q, %q) = %q, want %q", tc.prefix, tc.name, got, tc.want)
			}
			if again := tc.rule.Map(tc.prefix, tc.name); again != got {
				t.Errorf("Map(%q, %q) = %q, then %q", tc.prefix, tc.name, got, again)
			}
		})
	}
}

func TestNameRuleWithoutRoomForAHash(t *testing.T) {
	for length := 4; length < 40; length++ {
		rule := cloud.NameRule{MaxLen: length, StartLetter: true, EndAlnum: true, NoDoubles: true}
		got := rule.Map("", strings.Repeat("Ä", 60))
		if len(got) > length || !regexp.MustCompile(`^v-h[0-9a-v]*$`).MatchString(got) {
			t.Errorf("Map with MaxLen %d = %q", length, got)
		}
	}
}

func FuzzNameRuleMap(f *testing.F) {
	long := strings.Repeat("n", 127)
	alike := []string{
		"a b", "a-b", "a_b", "a/b", "A-B", "a--b", "a-b-", "-a-b", "1", "v-1", "é", "e\u0301", "том", "тоm",
		long + "a", long + "b", long, strings.ToUpper(long),
	}
	for _, a := range alike {
		for _, b := range alike {
			f.Add("", a, b)
		}
	}
	f.Add("", "pvc-1", "PVC-1")
	f.Add("x-", "a b", "a-b")
	f.Add("", "a-h0123456789abcdef", "a")
	f.Add("", strings.Repeat("n", 128), strings.Repeat("n", 127)+"\xff")
	f.Fuzz(func(t *testing.T, prefix, a, b string) {
		for rule, c := range cloudNames {
			x, y := c.rule.Map(prefix, a), c.rule.Map(prefix, b)
			if !c.allows(x) {
				t.Errorf("%s: Map(%q, %q) = %q, which the cloud refuses", rule, prefix, a, x)
			}
			if a != b && x == y {
				t.Errorf("%s: %q and %q both become %q", rule, a, b, x)
			}
			if x != prefix+a && c.rule.Map("", x) == x {
				t.Errorf("%s: %q becomes %q, which a request of that name gets too", rule, a, x)
			}
			if c.allows(prefix+a) && x != prefix+a && !strings.Contains(prefix+a, "-h") {
				t.Errorf("%s: the legal name %q becomes %q", rule, prefix+a, x)
			}
		}
	})
}
