package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// compile builds a static program. Nothing of this machine goes into it: no paths, no state of a checkout.
func compile(root, pkg, out, ldflags string, platform v1.Platform) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", out, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOWORK=off",
		// The baseline of each architecture, whatever the builder's own environment prefers.
		"GOAMD64=v1", "GOARM64=v8.0",
	)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compile %s for %s: %w", pkg, platform.String(), err)
	}
	return nil
}
