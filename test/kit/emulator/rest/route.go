package rest

import (
	"net/http"
	"strconv"
	"strings"
)

// Handler answers the requests of one route.
type Handler func(*Request) Answer

// Request is a request that has passed authentication, limits and faults.
type Request struct {
	*http.Request
	// Route is the path as the API describes it.
	Route string
	// Body is the whole body.
	Body []byte
	// ID is the request's id, which error bodies and headers repeat.
	ID string
	// Effect is what an armed fault wants of the handler: an errored operation, a stale answer.
	Effect Effect
}

// PathNumber returns a number in the path, or 0 when it is none.
func (r *Request) PathNumber(name string) int {
	n, err := strconv.Atoi(r.PathValue(name))
	if err != nil {
		return 0
	}
	return n
}

type route struct {
	method, pattern string
	segments        []string
	handler         Handler
}

// find returns the route of a request and fills in the request's path values. A fixed segment goes
// before a parameter in the same place. It is not http.ServeMux because that refuses two routes like
// /volumes/snapshots/{id} and /volumes/{id}/actions, which real APIs have side by side.
func (s *Server) find(r *http.Request) *route {
	segments := splitPath(r.URL.Path)
	var best *route
	for _, candidate := range s.routes {
		if candidate.method == r.Method && candidate.fits(segments) && (best == nil || candidate.beats(best)) {
			best = candidate
		}
	}
	if best == nil {
		return nil
	}
	for i, segment := range best.segments {
		if name, is := parameter(segment); is {
			r.SetPathValue(name, segments[i])
		}
	}
	return best
}

func (r *route) fits(path []string) bool {
	if len(path) != len(r.segments) {
		return false
	}
	for i, segment := range r.segments {
		if _, is := parameter(segment); !is && segment != path[i] || is && path[i] == "" {
			return false
		}
	}
	return true
}

func (r *route) beats(other *route) bool {
	for i, segment := range r.segments {
		_, mine := parameter(segment)
		_, theirs := parameter(other.segments[i])
		if mine != theirs {
			return theirs
		}
	}
	return false
}

func splitPath(path string) []string { return strings.Split(path, "/") }

func parameter(segment string) (name string, is bool) {
	if !strings.HasPrefix(segment, "{") {
		return "", false
	}
	return strings.Trim(segment, "{}"), true
}
