//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/doctest"
	"github.com/assay-project/assay/test/cluster"
)

const (
	// registryHost is the registry of README.md. In the namespaces of the test it is Debian's docker-registry, on the loopback address and
	// without TLS.
	registryHost = "registry.example.com"
	// pushBlock is the type of the block of README.md that pushes images.
	pushBlock = "push-images"
	// beforeCommand is printed before the command that installs pushed images.
	beforeCommand = "To install them:\n\n"
)

// hostsFile returns the hosts(5) of the namespaces.
func hostsFile() string { return "127.0.0.1 localhost " + registryHost + "\n" }

// mirrorConfig makes containerd pull from registryHost without TLS.
func (m *machine) mirrorConfig() error {
	_, err := m.write("certs.d/"+registryHost+"/hosts.toml", "[host.\"http://"+registryHost+"\"]\n  capabilities = [\"pull\", \"resolve\"]\n")
	return err
}

// serveRegistry starts docker-registry.
func (m *machine) serveRegistry(ctx context.Context) error {
	config, err := m.write("registry.yaml", "version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: "+m.path("registry")+"}}\nhttp: {addr: \"127.0.0.1:80\"}\n")
	if err != nil {
		return err
	}
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		return err
	}
	return m.Run(ctx, cluster.Program{
		Name: "docker-registry", Path: program, Args: []string{"serve", config},
		Ready: func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+registryHost+"/v2/", http.NoBody)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			return response.Body.Close()
		},
	})
}

// installPushed runs the block of README.md that pushes the images, and the command that it prints, as a user would.
func installPushed(ctx context.Context, s *story) error {
	text, err := s.block("README.md")
	if err != nil {
		return err
	}
	again, err := s.block("docs/install.md")
	if err != nil {
		return err
	}
	if again != text {
		return fmt.Errorf("docs/install.md has %q, and README.md %q", again, text)
	}
	if err := s.serveRegistry(ctx); err != nil {
		return err
	}
	pushed, err := s.shell(ctx, text)
	if err != nil {
		return err
	}
	_, command, found := strings.Cut(pushed, beforeCommand)
	if !found {
		return errors.New("the command that installs the images is missing")
	}
	if _, err := s.shell(ctx, strings.TrimSpace(command)); err != nil {
		return err
	}
	if err := s.waitLabel(ctx, featureNS+"kernel-version.full"); err != nil {
		return err
	}
	if err := s.allReady(ctx); err != nil {
		return err
	}
	if err := s.pulled(ctx, command); err != nil {
		return err
	}
	_, err = s.show(ctx, "helm", "uninstall", release, "--namespace="+namespace, "--wait", "--timeout="+helmTimeout)
	return err
}

// block returns the commands that push images from a page.
func (s *story) block(file string) (string, error) {
	page, err := doctest.Read(filepath.Join(s.root, file))
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(page.Blocks, func(b *doctest.Block) bool { return b.Kind == pushBlock })
	if at < 0 {
		return "", errors.New(file + " has no block " + pushBlock)
	}
	return strings.TrimSpace(page.Blocks[at].Text), nil
}

// pulled checks that all containers run images of the registry with digests of the command.
func (s *story) pulled(ctx context.Context, command string) error {
	pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + release})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			repository, digest, _ := strings.Cut(c.ImageID, "@")
			if !strings.HasPrefix(repository, registryHost+"/") || !strings.Contains(command, digest) {
				return fmt.Errorf("container %s of pod %s runs %s, and not an image that was pushed", c.Name, pods.Items[i].Name, c.ImageID)
			}
			s.note("%s runs %s", pods.Items[i].Name, c.ImageID)
		}
	}
	return nil
}

// ofMake tells whether a make that runs this test left a variable to makes below it, which would print directories between the lines of
// the command.
func ofMake(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}, name)
}

// shell runs commands of a page in a clone, and returns their output. The caches of Go are those of the user. Only programs for this
// machine are compiled, and the registry has no TLS.
func (s *story) shell(ctx context.Context, commands string) (string, error) {
	fmt.Println(indent("  $ ", commands))
	cmd := exec.CommandContext(ctx, "sh", "-ec", commands)
	own := slices.DeleteFunc(s.env(), func(v string) bool { return strings.HasPrefix(v, "HOME=") })
	cmd.Dir = s.root
	cmd.Env = slices.Concat(slices.DeleteFunc(os.Environ(), ofMake), own, []string{"PLAIN_HTTP=1", "PLATFORMS=linux/" + runtime.GOARCH})
	out, err := cmd.CombinedOutput()
	fmt.Println(indent("  ", strings.TrimSpace(string(out))))
	if err != nil {
		return "", fmt.Errorf("%s: %w", commands, err)
	}
	return string(out), nil
}
