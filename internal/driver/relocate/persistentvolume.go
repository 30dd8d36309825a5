package relocate

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// object is a JSON object. What the program does not know of a PersistentVolume stays as it is.
type object = map[string]any

// persistentVolume is the PersistentVolume of a volume that is moved.
type persistentVolume struct {
	name                  string
	metadata, spec, claim object // claim is empty if it has none
	affinity              object // with the new zone
}

// readPersistentVolume reads a file, or the standard input for -.
func readPersistentVolume(name string) (*persistentVolume, error) {
	file := os.Stdin
	if name != "-" {
		var err error
		if file, err = os.Open(name); err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
	}
	decoder := json.NewDecoder(file)
	decoder.UseNumber()
	var all object
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("as JSON: %w", err)
	}
	pv := &persistentVolume{metadata: in(all, "metadata"), spec: in(all, "spec"), claim: in(all, "spec", "claimRef")}
	if pv.name, _ = pv.metadata["name"].(string); all["kind"] != "PersistentVolume" || pv.name == "" {
		return nil, fmt.Errorf("it is of the kind %v: the output of kubectl get pv NAME -o json is needed", all["kind"])
	}
	return pv, nil
}

// in returns an object that is in others, by its path; an empty one if there is none.
func in(o object, path ...string) object {
	for _, name := range path {
		o, _ = o[name].(object)
	}
	if o == nil {
		o = object{}
	}
	return o
}

// fit checks that this is the PersistentVolume of a volume of this driver, and sets its node affinity for a zone.
func (pv *persistentVolume) fit(names driver.Names, volume, zone string) error {
	source := in(pv.spec, "csi")
	handle, _ := source["volumeHandle"].(string)
	switch {
	case source["driver"] != names.Driver:
		return fmt.Errorf("PersistentVolume %s is of the driver %v, and not of %s: %w", pv.name, source["driver"], names.Driver, fault.Precondition)
	case names.VolumeID(handle) != volume:
		return fmt.Errorf("PersistentVolume %s has the volume %s, and not %s: %w", pv.name, handle, volume, fault.Precondition)
	}
	segments := names.Segments(zone)
	keys, err := pv.keys(segments)
	var expressions []object
	for _, key := range keys {
		expressions = append(expressions, object{"key": key, "operator": "In", "values": []string{segments[key]}})
	}
	pv.affinity = object{"required": object{"nodeSelectorTerms": []object{{"matchExpressions": expressions}}}}
	return err
}

// keys returns the keys of the node affinity: all of the driver's if there is none. Others than the driver's are refused, because what
// they should be in the other zone is not known.
func (pv *persistentVolume) keys(known map[string]string) (keys []string, err error) {
	terms, _ := in(pv.spec, "nodeAffinity", "required")["nodeSelectorTerms"].([]any)
	for _, t := range terms {
		term, _ := t.(object)
		expressions, _ := term["matchExpressions"].([]any)
		fields, _ := term["matchFields"].([]any)
		for _, e := range slices.Concat(expressions, fields) {
			expression, _ := e.(object)
			key, _ := expression["key"].(string)
			if _, is := known[key]; !is || expression["operator"] != "In" {
				return nil, fmt.Errorf("the node affinity of PersistentVolume %s has %v %v, which is not this driver's; move it without --pv, and write its PersistentVolume by hand: %w",
					pv.name, expression["key"], expression["operator"], fault.Precondition)
			}
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	if len(keys) == 0 {
		keys = slices.Sorted(maps.Keys(known))
	}
	return keys, nil
}

// patch returns what changes of the PersistentVolume where the cluster lets it change, and the commands that change it.
func (pv *persistentVolume) patch() (object, []string) {
	return object{"spec": object{"nodeAffinity": pv.affinity}}, []string{"kubectl patch pv " + pv.name + " --type merge --patch-file FILE"}
}

const retain, policy = "Retain", "persistentVolumeReclaimPolicy"

// kept reports whether the volume is kept when its claim is deleted, which is also the default of a PersistentVolume.
func (pv *persistentVolume) kept() bool {
	set, is := pv.spec[policy]
	return !is || set == retain
}

// again returns the PersistentVolume as it is created again, and the commands that replace the old one, which is protected while it is
// bound. It keeps the uid of its claim, so that the claim is bound to it again. The reclaim policy is Retain until that is done, so that
// no mistake deletes the volume.
func (pv *persistentVolume) again() (object, []string) {
	metadata, spec := object{"name": pv.name}, maps.Clone(pv.spec)
	for _, kept := range []string{"labels", "annotations"} {
		if value, is := pv.metadata[kept]; is {
			metadata[kept] = value
		}
	}
	setPolicy := func(policy any) string {
		return fmt.Sprintf(`kubectl patch pv %s --patch '{"spec":{"persistentVolumeReclaimPolicy":"%v"}}'`, pv.name, policy)
	}
	const create = "kubectl create --filename FILE"
	steps, remove := []string{setPolicy(retain)}, "kubectl delete pv "+pv.name
	if len(pv.claim) > 0 {
		claim := maps.Clone(pv.claim)
		delete(claim, "resourceVersion")
		spec["claimRef"] = claim
		steps = append(steps, remove+" --wait=false", fmt.Sprintf(`kubectl patch pv %s --patch '{"metadata":{"finalizers":null}}'`, pv.name), create,
			fmt.Sprintf("kubectl --namespace %v wait --for=jsonpath='{.status.phase}'=Bound --timeout=5m pv/%s pvc/%v", claim["namespace"], pv.name, claim["name"]))
	} else {
		steps = append(steps, remove, create)
	}
	if !pv.kept() {
		steps = append(steps, setPolicy(spec[policy]))
	}
	spec["nodeAffinity"], spec[policy] = pv.affinity, retain
	return object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}, steps
}
