package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// FilesFlag adds -f, as kubectl has it, for the files that a command also takes as arguments.
func FilesFlag(cmd *cobra.Command, files *[]string, usage string) {
	cmd.Flags().StringSliceVarP(files, "filename", "f", nil, usage)
}

// ObjectName returns the name from NAME or TYPE/NAME, as in kubectl. kinds are the accepted types; the first one is used in
// messages.
func ObjectName(arg string, kinds ...string) (string, error) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok {
		return arg, nil
	}
	kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
	if !slices.Contains(kinds, kind) || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("invalid name %q: use NAME or %s/NAME", arg, kinds[0])
	}
	return name, nil
}

// Names of types in TYPE/NAME.
var (
	NodeKinds = []string{"node", "nodes", "no"}
	RuleKinds = []string{"nodefeaturerule", "nodefeaturerules", "nfr"}
	PodKinds  = []string{"pod", "pods", "po"}
)
