package real

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

// scrubber replaces what is the account's own in exchanges. It keeps a string only if its key is known to have nothing of an
// account in it, so an API's new field cannot leak. The same id or text is replaced by the same one everywhere.
type scrubber struct {
	exchanges []recorded.Exchange
	own       string
	seen      map[string]string
	made      map[string]bool // the values of seen
}

// keptKeys have values that say how the API behaves. region has a subtree of public facts.
var keptKeys = words(`status type resource_type region region_slug zone_id type_id encryption hardware_type filesystem_type
	action field code disk_kind mode auto_delete linode_config_id block_size size size_gigabytes results page pages
	capabilities country site_type +order +order_by`)

// proseKeys have sentences of the API, which can name an object of the account.
var proseKeys = words("reason message details description")

// idKeys have ids.
var idKeys = regexp.MustCompile(`(^|_)(id|ids|uuid|euuid|urn)$`)

// userKeys have maps whose keys are the user's.
var userKeys = words("labels metadata")

// credentials is the family of gRPC methods whose requests and answers are credentials.
const credentials = "/yandex.cloud.iam."

func words(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

func newScrubber(own string, exchanges []recorded.Exchange) *scrubber {
	return &scrubber{exchanges: exchanges, own: own, seen: map[string]string{}, made: map[string]bool{}}
}

// all returns the exchanges without the account's own. It reads them twice: a sentence can name an object before an answer
// has shown it.
func (s *scrubber) all() []recorded.Exchange {
	out := make([]recorded.Exchange, len(s.exchanges))
	for range 2 {
		for i, e := range s.exchanges {
			e.Path = s.path(e.Path)
			if e.Filter != nil {
				filter := string(s.document("X-Filter", json.RawMessage(*e.Filter)))
				e.Filter = &filter
			}
			if strings.HasPrefix(e.Path, credentials) {
				e.Body, e.Answer = nil, nil
			}
			e.Body, e.Answer = s.document("", e.Body), s.document("", e.Answer)
			out[i] = e
		}
	}
	return out
}

// document scrubs JSON. What is no JSON is left out.
func (s *scrubber) document(key string, text json.RawMessage) json.RawMessage {
	var v any
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if len(text) == 0 || d.Decode(&v) != nil {
		return json.RawMessage("null")
	}
	clean, err := json.Marshal(s.value(key, v))
	if err != nil {
		return json.RawMessage("null")
	}
	return clean
}

func (s *scrubber) value(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		return s.object(key, v)
	case []any:
		for i := range v {
			v[i] = s.value(key, v[i])
		}
	case json.Number:
		if idKeys.MatchString(key) {
			return json.Number(s.replacement(v.String(), func(n int) string { return fmt.Sprint(1_000_000 + n) }))
		}
	case string:
		return s.text(key, v)
	}
	return v
}

func (s *scrubber) object(key string, v map[string]any) any {
	if key == "region" {
		return v
	}
	out := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(v)) {
		name := k
		if userKeys[key] && !strings.HasPrefix(k, "cloudblock") {
			name = s.name(k)
		}
		// The id of an error of DigitalOcean is a word.
		if word, is := v[k].(string); is && k == "id" && v["message"] != nil && errorWord.MatchString(word) {
			out[name] = word
			continue
		}
		out[name] = s.value(k, v[k])
	}
	return out
}

var (
	errorWord = regexp.MustCompile(`^[A-Za-z_]{3,40}$`)
	aTime     = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?$`)
	aNumber   = regexp.MustCompile(`^\d+$`)
	aUUID     = regexp.MustCompile(`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)
	anID      = regexp.MustCompile(`^[a-z0-9]{20}$`)
	aLink     = regexp.MustCompile(`^(/dev/disk/by-id/[A-Za-z0-9-]+_Volume_)(.+)$`)
	aService  = regexp.MustCompile(`^[a-z0-9.-]+\.(api\.cloud\.yandex|yandexcloud)\.net:443$`)
	aTypeURL  = regexp.MustCompile(`^type\.googleapis\.com/[A-Za-z0-9_.]+$`)
	quoted    = regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`")
	plainWord = regexp.MustCompile(`^[("'\[]*([A-Za-z]+('[a-z]+)?|[0-9]{1,3})[)"'\].,:;!?]*$`)
)

// leftOut stands in a sentence in the place of a word that can be the account's.
const leftOut = "***"

// text scrubs a string.
func (s *scrubber) text(key, v string) string {
	link := aLink.FindStringSubmatch(v)
	switch {
	case v == "", keptKeys[key], aTime.MatchString(v), s.isOwn(v), aService.MatchString(v), aTypeURL.MatchString(v), aNumber.MatchString(v) && len(v) < 4:
		return v
	case proseKeys[key]:
		return s.prose(v)
	case strings.HasPrefix(v, "/v"):
		return s.path(v)
	case link != nil:
		return link[1] + s.text("", link[2])
	default:
		return s.name(v)
	}
}

// isOwn reports whether the run gave the name or the tag.
func (s *scrubber) isOwn(v string) bool {
	return s.own != "" && strings.HasPrefix(v, s.own) || strings.HasPrefix(v, "cloudblock-cluster:"+s.own) || v == "cloudblock-cluster"
}

// prose scrubs a sentence: texts that stand elsewhere, what is quoted, and each word that is more than letters.
func (s *scrubber) prose(v string) string {
	for _, known := range slices.SortedFunc(maps.Keys(s.seen), func(a, b string) int { return len(b) - len(a) }) {
		if len(known) > 3 {
			v = strings.ReplaceAll(v, known, s.seen[known])
		}
	}
	v = quoted.ReplaceAllStringFunc(v, func(part string) string {
		if inner := part[1 : len(part)-1]; s.made[inner] || s.isOwn(inner) || keptKeys[inner] || idKeys.MatchString(inner) {
			return part
		}
		return leftOut
	})
	fields := strings.Fields(v)
	for i, word := range fields {
		if bare := strings.Trim(word, "\"'`()[].,:;"); !plainWord.MatchString(word) && !s.made[bare] && !s.isOwn(bare) && !idKeys.MatchString(bare) {
			fields[i] = leftOut
		}
	}
	return strings.Join(fields, " ")
}

// name replaces a string by one of the same form.
func (s *scrubber) name(v string) string {
	switch {
	case aNumber.MatchString(v):
		return s.replacement(v, func(n int) string { return fmt.Sprint(1_000_000 + n) })
	case aUUID.MatchString(v):
		return s.replacement(v, func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) })
	case anID.MatchString(v):
		return s.replacement(v, func(n int) string { return fmt.Sprintf("id%018d", n) })
	}
	return s.replacement(v, func(n int) string { return fmt.Sprintf("text-%d", n) })
}

// replacement returns what v is replaced by everywhere.
func (s *scrubber) replacement(v string, form func(n int) string) string {
	if s.made[v] {
		return v
	}
	with, is := s.seen[v]
	if !is {
		with = form(len(s.seen) + 1)
		s.seen[v], s.made[with] = with, true
	}
	return with
}

// keptParameters of a query have nothing of an account.
var keptParameters = words("page page_size per_page region resource_type")

// path scrubs the path of a request and its query.
func (s *scrubber) path(v string) string {
	path, query, has := strings.Cut(v, "?")
	if strings.HasPrefix(path, "/yandex.cloud.") {
		return path
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if strings.ContainsAny(segment, "0123456789") && segment != "v2" && segment != "v4" && segment != "v4beta" {
			segments[i] = s.name(segment)
		}
	}
	path = strings.Join(segments, "/")
	if !has {
		return path
	}
	parameters := strings.Split(query, "&")
	for i, p := range parameters {
		if name, value, _ := strings.Cut(p, "="); !keptParameters[name] && !s.isOwn(value) {
			parameters[i] = name + "=" + s.name(value)
		}
	}
	return path + "?" + strings.Join(parameters, "&")
}
