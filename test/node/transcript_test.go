//go:build linux

package main

import "testing"

func TestCommandsAreShownAsTheyAreTyped(t *testing.T) {
	for name, test := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"Plain":  {args: []string{"kubectl", "get", "nodes"}, want: "kubectl get nodes"},
		"Quoted": {args: []string{"kubectl", "get", "-o", "jsonpath={.items[*]}", "it's", ""}, want: `kubectl get -o 'jsonpath={.items[*]}' 'it'\''s' ''`},
		"Input":  {stdin: "\na: 1\n", args: []string{"kubectl", "apply", "-f", "-"}, want: "kubectl apply -f - <<'EOF'\na: 1\nEOF"},
		"Long": {
			args: []string{"helm", "install", "--set=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "--set=bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "--wait"},
			want: "helm install --set=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \\\n    --set=bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb --wait",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := typed(test.stdin, test.args); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}
