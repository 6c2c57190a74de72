package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	topologyv1alpha2 "github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/internal/fleet/index"
)

// Live reads what only the page of one object shows, when it is shown. Errors are sentences for users. It is safe for concurrent use.
type Live interface {
	// Events returns the Events of an object.
	Events(ctx context.Context, kind, namespace, name string) ([]corev1.Event, error)
	// Why returns a pod and what assay why says about it; pod is nil if it does not exist. Node is a node to show in detail; empty: the
	// pod's.
	Why(ctx context.Context, nodes *index.Index, namespace, name, node string) (pod *corev1.Pod, why *serving.Answer, err error)
	// Zones returns the NodeResourceTopology of a node, nil if there is none.
	Zones(ctx context.Context, node string) (*topologyv1alpha2.NodeResourceTopology, error)
}

const (
	// liveTimeout is the maximum time that a page waits for what is read when it is shown. The rest of the page is shown without it.
	liveTimeout = 5 * time.Second
	// maxFields is the maximum number of keys that a page names per client.
	maxFields = 12
)

// changes is what changed an object: its Events, the clients that wrote it, and commands that show more.
type changes struct {
	Events        *table
	EventsUnknown string
	Writers       *table
	Commands      []string
}

func (c *changes) tables() []*table {
	if c == nil {
		return nil
	}
	return some(c.Events, c.Writers)
}

// changesOf reads what changed an object. Resource is its name for kubectl; more are further commands.
func (d *data) changesOf(ctx context.Context, kind, resource string, meta *metav1.ObjectMeta, more ...string) *changes {
	out := &changes{Commands: kubectl(resource, meta.Namespace, meta.Name)}
	out.Commands = append(out.Commands, more...)
	out.Writers = d.writers(meta.ManagedFields)
	if d.Live == nil {
		out.EventsUnknown = "Events are read from a cluster only."
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	list, err := d.Live.Events(ctx, kind, meta.Namespace, meta.Name)
	if err != nil {
		out.EventsUnknown = unread(err)
		return out
	}
	out.Events = d.events(list, false)
	return out
}

// unread says why something could not be read while a page was shown.
func unread(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "the API server has not answered within " + liveTimeout.String()
	}
	return err.Error()
}

// kubectl returns commands that show an object.
func kubectl(resource, namespace, name string) []string {
	in := ""
	if namespace != "" {
		in = " -n " + shellWord(namespace)
	}
	return []string{
		"kubectl describe " + resource + in + " " + shellWord(name),
		"kubectl get " + resource + in + " " + shellWord(name) + " -o yaml --show-managed-fields",
	}
}

// shellWord quotes a word for a shell, if necessary.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// lastTime returns the time at which an Event was emitted last.
func lastTime(e *corev1.Event) time.Time {
	out := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.FirstTimestamp.Time, e.LastTimestamp.Time, e.EventTime.Time} {
		if t.After(out) {
			out = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(out) {
		out = e.Series.LastObservedTime.Time
	}
	return out
}

// events returns the table of Events, the newest first, with the objects that they are about or without them.
func (d *data) events(list []corev1.Event, about bool) *table {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b corev1.Event) int { return lastTime(&b).Compare(lastTime(&a)) })
	var rows [][]cell
	for i := range list {
		e := &list[i]
		kind := plain(e.Type)
		if e.Type == corev1.EventTypeWarning {
			kind = kind.as("warn")
		}
		n := max(1, int(e.Count))
		if e.Series != nil {
			n = max(n, int(e.Series.Count))
		}
		row := []cell{
			plain(e.Reason), kind, plain(e.Message), d.age(lastTime(e)), number(n), plain(cmp.Or(e.Source.Component, e.ReportingController)),
		}
		if about {
			row = []cell{d.age(lastTime(e)), aboutCell(&e.InvolvedObject), plain(e.Reason).as(kind.Class), plain(e.Message)}
		}
		rows = append(rows, row)
	}
	heads := slices.Concat(columns(columnText, "reason", "type", "message"), columns(columnValue, "age"), columns(columnCount, "count"), columns(columnText, "from"))
	if about {
		heads = slices.Concat(columns(columnValue, "age"), columns(columnText, "object", "reason", "message"))
	}
	out := tableOf("events", "Events", heads, rows)
	out.Empty = "No Events found; the API server keeps them for an hour by default."
	return out
}

// writers returns the clients that own fields of an object according to its managedFields, the latest first; nil: they are unknown.
func (d *data) writers(entries []metav1.ManagedFieldsEntry) *table {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b metav1.ManagedFieldsEntry) int { return timeOf(b.Time).Compare(timeOf(a.Time)) })
	var rows [][]cell
	for i := range entries {
		e := &entries[i]
		operation := string(e.Operation)
		if e.Subresource != "" {
			operation += " of " + e.Subresource
		}
		rows = append(rows, []cell{plain(e.Manager), d.ageOf(e.Time), plain(operation), plain(fieldsOf(e.FieldsV1))})
	}
	out := tableOf("writers", "Who wrote it", slices.Concat(
		columns(columnText, "client"), columns(columnValue, "last change"), columns(columnText, "operation", "fields that it owns")), rows)
	return unlessEmpty(out)
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// fieldsOf describes the fields of an entry of managedFields: the keys of labels, annotations and resources, the types of conditions,
// and other fields by their two outermost names.
func fieldsOf(fields *metav1.FieldsV1) string {
	var tree map[string]any
	if fields == nil || json.Unmarshal(fields.GetRawBytes(), &tree) != nil {
		return "–"
	}
	var out []string
	for _, top := range slices.Sorted(maps.Keys(tree)) {
		below, _ := tree[top].(map[string]any)
		name := strings.TrimPrefix(top, "f:")
		if len(below) == 0 {
			out = append(out, name)
		}
		for _, second := range slices.Sorted(maps.Keys(below)) {
			if second == "." {
				continue
			}
			text := name + "." + strings.TrimPrefix(second, "f:")
			if keys := ownedKeys(below[second]); len(keys) > 0 {
				more := ""
				if len(keys) > maxFields {
					more = " and " + thousands(len(keys)-maxFields) + " more"
					keys = keys[:maxFields]
				}
				text += ": " + strings.Join(keys, " ") + more
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// ownedKeys returns the keys of a map and the names of the items of a list in managedFields.
func ownedKeys(v any) (out []string) {
	tree, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		switch {
		case strings.HasPrefix(name, "f:"):
			out = append(out, name[len("f:"):])
		case strings.HasPrefix(name, "k:"):
			var key map[string]any
			if json.Unmarshal([]byte(name[len("k:"):]), &key) == nil {
				for _, field := range slices.Sorted(maps.Keys(key)) {
					if text, ok := key[field].(string); ok {
						out = append(out, text)
					}
				}
			}
		}
	}
	return out
}
