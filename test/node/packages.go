//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// needed maps each program to the Debian package that contains it.
var needed = []struct{ program, pkg string }{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"iptables", "iptables"},
	{"conntrack", "conntrack"},
	{"ip", "iproute2"},
	{cniDir + "/bridge", "containernetworking-plugins"},
	{cniDir + "/host-local", "containernetworking-plugins"},
	{"docker-registry", "docker-registry"},
}

// cniDir is the directory of Debian's CNI plugins.
const cniDir = "/usr/lib/cni"

// missingPackages returns the packages of missing programs.
func missingPackages() []string {
	var missing []string
	for _, n := range needed {
		if _, err := exec.LookPath(n.program); err != nil {
			missing = append(missing, n.pkg)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// packages returns a directory with missing packages, "" if nothing is missing. It installs nothing: packages are downloaded and
// unpacked to the user's cache, and mounted over /usr in the mount namespace of the test only.
func packages(ctx context.Context, download bool) (string, error) {
	missing := missingPackages()
	if len(missing) == 0 {
		return "", nil
	}
	list := strings.Join(missing, " ")
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "assay", "node", strings.Join(missing, "+"))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if !download {
		return "", skipped{"these Debian packages are missing: " + list}
	}
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", skipped{fmt.Sprintf("these programs' packages are missing, and there is no %s to download them: %s", program, list)}
		}
	}
	fmt.Println("node: downloading Debian packages, which are unpacked into the cache and not installed:", list)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := fetch(ctx, work, missing); err != nil {
		return "", skipped{"these Debian packages are missing, and cannot be downloaded: " + list + ": " + err.Error()}
	}
	return dir, os.Rename(filepath.Join(work, "root"), dir)
}

// fetch downloads packages and their missing dependencies, and unpacks them. apt keeps its lists and archives in the directory,
// too, so that those of the machine do not change.
func fetch(ctx context.Context, work string, names []string) error {
	archives, root := filepath.Join(work, "archives"), filepath.Join(work, "root")
	for _, dir := range []string{archives + "/partial", filepath.Join(work, "lists/partial"), root} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	own := []string{"-q", "-o", "Dir::State::lists=" + filepath.Join(work, "lists"), "-o", "Dir::Cache=" + work, "-o", "Dir::Cache::archives=" + archives}
	own = append(own, "-o", "APT::Sandbox::User=root") // only this user can access the directory
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--download-only", "--no-install-recommends"}, names...)} {
		cmd := exec.CommandContext(ctx, "apt-get", append(slices.Clone(own), args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(out))
		}
	}
	files, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, err := output(ctx, work, "dpkg-deb", "--extract", file, root); err != nil {
			return err
		}
	}
	return arrange(ctx, root)
}

// arrange makes the changes that installation scripts would make.
func arrange(ctx context.Context, root string) error {
	// Packages still contain directories in the root that are links to /usr (UsrMerge).
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		from := filepath.Join(root, dir)
		if _, err := os.Stat(from); err != nil {
			continue
		}
		if err := os.MkdirAll(filepath.Join(root, "usr", dir), 0o755); err != nil {
			return err
		}
		if _, err := output(ctx, root, "cp", "-a", from+"/.", filepath.Join("usr", dir)); err != nil {
			return err
		}
	}
	// update-alternatives selects one of two programs with this name.
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		link := filepath.Join(root, "usr/sbin", name)
		if err := os.Symlink("xtables-nft-multi", link); err != nil && !errors.Is(err, os.ErrExist) {
			if errors.Is(err, os.ErrNotExist) {
				return nil // iptables is installed
			}
			return err
		}
	}
	return nil
}

// overlay mounts unpacked packages over /usr.
func overlay(packages string) error {
	if packages == "" {
		return nil
	}
	options := "lowerdir=" + strings.ReplaceAll(filepath.Join(packages, "usr"), ":", `\:`) + ":/usr"
	if err := unix.Mount("overlay", "/usr", "overlay", unix.MS_RDONLY, options); err != nil {
		return fmt.Errorf("lay packages over /usr: %w (install them: %s)", err, strings.ReplaceAll(filepath.Base(packages), "+", " "))
	}
	return nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
