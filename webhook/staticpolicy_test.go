//go:build linux

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// staticNames gives policies and bindings the suffix of files that kube-apiserver reads, as the command in docs/security.md does.
var staticNames = regexp.MustCompile(`(?m)^(  name|  policyName): (assay-.*)$`)

// TestPoliciesInFilesCannotBeDeleted starts an API server that reads the policies from a directory. They bind the token of a worker, and
// an administrator with all permissions does not see them.
func TestPoliciesInFilesCannotBeDeleted(t *testing.T) {
	const ours, node = "assay-static-test", "static-n1"
	dir := t.TempDir()
	config := filepath.Join(dir, "admission.yaml")
	manifests := filepath.Join(dir, "manifests")
	err := errors.Join(os.Mkdir(manifests, 0o755), os.WriteFile(config, []byte(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ValidatingAdmissionPolicyConfiguration
    staticManifestsDir: `+manifests+"\n"), 0o644))
	for name, data := range charts.Policies(charts.PolicySettings{Namespace: ours}) {
		err = errors.Join(err, os.WriteFile(filepath.Join(manifests, name), staticNames.ReplaceAll(data, []byte("$1: $2.static.k8s.io")), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	c := testkit.PrivateCluster(t, cluster.Options{APIServerArgs: []string{"--admission-control-config-file=" + config}})
	worker := newPublisher(t, c, ours, charts.DefaultWorker, node)
	testkit.Eventually(t, "the worker publishes for itself only", func(ctx context.Context) error {
		if err := worker.create(ctx, ours, "static-n2", "static-n2", "static-n2"); err == nil || !strings.Contains(err.Error(), "a node publishes only for itself") {
			return fmt.Errorf("for another node: %w", err)
		}
		err := worker.create(ctx, ours, node, node, node)
		_ = worker.client.Namespace(ours).Delete(ctx, node, metav1.DeleteOptions{})
		return err
	})
	const name = "assay-node-bound-publishing.static.k8s.io"
	for _, kind := range []string{"validatingadmissionpolicy", "validatingadmissionpolicybinding"} {
		if out, err := c.KubectlInput(t.Context(), "", "delete", kind, name); err == nil || !strings.Contains(err.Error()+out, "not found") {
			t.Errorf("an administrator deletes a %s: %s %v", kind, out, err)
		}
	}
}
