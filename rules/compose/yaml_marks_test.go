package compose_test

import (
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/compose"
)

func TestALoneExclamationMarkIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ text, at string }{
		"Flow":             {`rules: [{name: a, conditions: [{op: ! eq}]}]`, "f:1:37: "},
		"Block":            {"rules:\n- name: a\n  conditions:\n  - op: ! eq", "f:4:9: "},
		"BehindCharacters": {`rules: [{name: größe, conditions: [{op: ! eq}]}]`, "f:1:41: "},
		"Tab":              {"rules: [{name: a, conditions: [{op: !\teq}]}]", "f:1:37: "},
		"Quoted":           {`rules: [{name: a, conditions: [{op: "! eq"}]}]`, ""},
		"InText":           {"description: wow! it works\nrules: []", ""},
		"InAComment":       {"rules: [] # ! eq", ""},
		"InABlock":         {"description: |\n  ! eq\nrules: []", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compose.ParseYAML("f", []byte(test.text))
			switch {
			case test.at == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.at != "" && (err == nil || !strings.HasPrefix(err.Error(), test.at)):
				t.Errorf("error %v, want one at %s", err, test.at)
			}
		})
	}
}
