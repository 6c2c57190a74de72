package builtin_test

import (
	"encoding/json"
	"testing"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/test/hosts"
)

// TestSourcesDoNotModifyWhatTheyReturned runs the same sources on one machine after another, twice: the worker compares a result with the
// one before, and has published it. A source must not write to a map again that it has returned, nor return one of another machine.
func TestSourcesDoNotModifyWhatTheyReturned(t *testing.T) {
	text := func(of any) string {
		data, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	sources := builtin.Sources(builtin.DefaultConfig())
	type returned struct {
		what   string
		result discovery.Result
		before string
	}
	var all []returned
	for range 2 {
		for _, name := range hosts.Names {
			h, err := hosts.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			fresh := builtin.Sources(builtin.DefaultConfig())
			for i, s := range sources {
				got, err := s.Discover(t.Context(), h.Checked())
				want, wantErr := fresh[i].Discover(t.Context(), h.Checked())
				if g, ok := s.(discovery.Glancer); ok {
					g.Glance(t.Context(), h.Checked())
				}
				what := name + " " + s.Name()
				if gotText, wantText := text([]any{got.Features, got.Labels}), text([]any{want.Features, want.Labels}); gotText != wantText || (err == nil) != (wantErr == nil) {
					t.Errorf("%s: after other machines\n%s, %v\nwant\n%s, %v", what, gotText, err, wantText, wantErr)
				}
				all = append(all, returned{what, got, text([]any{got.Features, got.Labels})})
			}
		}
	}
	for _, r := range all {
		if now := text([]any{r.result.Features, r.result.Labels}); now != r.before {
			t.Errorf("%s: what it returned was\n%s\nand has become\n%s", r.what, r.before, now)
		}
	}
}
