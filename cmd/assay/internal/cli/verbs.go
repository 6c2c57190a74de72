package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/rules/manifest"
)

// RunsAlone is the annotation of a command with subcommands that also runs without arguments.
const RunsAlone = "assay.dev/runs-alone"

// verbsOfKubectl has what to use instead of verbs of kubectl, which users try first.
var verbsOfKubectl = map[string]string{
	"get":      "assay nodes, assay features, or assay rules list",
	"describe": "assay explain NODE, assay why pod NAME, or assay rules get NAME",
	"apply":    "kubectl apply; assay diff FILE shows what that would change",
	"create":   "kubectl create; assay diff FILE shows what that would change",
	"delete":   "kubectl delete; assay diff --remove NAME shows what that would change",
	"edit":     "kubectl edit; assay lint checks files of rules",
	"logs":     "kubectl logs; assay doctor names the pods that fail",
	"top":      "assay nodes, or assay features",
	"check":    "assay lint FILE for rules, or assay doctor for an installation",
	"status":   "assay doctor",
}

// UnknownVerb returns the error for a subcommand that does not exist, with what to use instead.
func UnknownVerb(cmd *cobra.Command, verb string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(append(known, c.Name()), c.Aliases...)
		}
	}
	hint := "; see " + cmd.CommandPath() + " --help"
	if use := verbsOfKubectl[verb]; use != "" && !cmd.HasParent() {
		hint = "; use " + use
	} else if near := manifest.Nearest(verb, known); near != "" {
		hint = "; did you mean " + near + "?"
	}
	return fmt.Errorf("unknown command %q for %s%s", verb, cmd.CommandPath(), hint)
}
