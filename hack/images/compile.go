package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// compile builds a static program, or several if out ends in a slash. The result is independent of the machine: it contains no
// paths or VCS state.
func compile(root, out, ldflags string, platform v1.Platform, packages ...string) error {
	path, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	if strings.HasSuffix(out, "/") {
		path += "/"
	}
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", path}, packages...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOWORK=off",
		// The baseline of each architecture, independent of the environment.
		"GOAMD64=v1", "GOARM64=v8.0",
	)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compile %s for %s: %w", strings.Join(packages, " "), platform.String(), err)
	}
	return nil
}
