// Command release creates all files of a release from one commit, signs them, and verifies them.
//
// It needs Go and git, but no registry, Docker daemon or network, except for downloading Go modules. The same commit and the same
// key result in the same bytes, including signatures; docs/release.md describes how this is verified.
package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "verify" {
		return runVerify(args[1:])
	}
	fs := flag.NewFlagSet("release", flag.ExitOnError)
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: release [flags]\n       release verify -key PUBLIC-KEY DIRECTORY\n\nflags:")
		fs.PrintDefaults()
	}
	r := release{}
	fs.StringVar(&r.root, "root", ".", "root `directory` of the project, a clean clone")
	fs.StringVar(&r.out, "out", "", "`directory` for the files; it is emptied first")
	fs.StringVar(&r.version, "version", "", "version, such as v1.2.3 or v1.2.3-rc.1")
	fs.StringVar(&r.ldflags, "ldflags", "-s -w", "flags for the linker")
	fs.StringVar(&r.platforms, "platforms", "linux/amd64,linux/arm64", "platforms of the images, separated by commas")
	fs.StringVar(&r.repository, "repository", "ghcr.io/assay-project", "`name` before that of each image")
	fs.StringVar(&r.builder, "builder", defaultBuilder, "`URI` of who builds, for the provenance")
	key := fs.String("key", "", "`file` with the private key to sign with, ECDSA P-256 in PEM; without it nothing is signed")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if r.out == "" || fs.NArg() > 0 {
		return errors.New("usage: release -out DIRECTORY -version VERSION [flags]")
	}
	var err error
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if r.date, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	var signer *ecdsa.PrivateKey
	if *key != "" {
		if signer, err = readPrivateKey(*key); err != nil {
			return err
		}
	}
	if err := r.build(ctx); err != nil {
		return err
	}
	if err := r.seal(signer); err != nil {
		return err
	}
	fmt.Printf("release %s of commit %s: %s\n", r.version, r.commit, r.out)
	if signer == nil {
		fmt.Println("NOT SIGNED: give -key (make release SIGNING_KEY=FILE), or sign SHA256SUMS with a tool of yours")
	}
	return nil
}

func runVerify(args []string) error {
	fs := flag.NewFlagSet("release verify", flag.ExitOnError)
	key := fs.String("key", "", "`file` with the public key")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *key == "" || fs.NArg() != 1 {
		return errors.New("usage: release verify -key PUBLIC-KEY DIRECTORY")
	}
	public, err := readPublicKey(*key)
	if err != nil {
		return err
	}
	found, err := verify(fs.Arg(0), public)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d files, signed; built from %s at commit %s\n", fs.Arg(0), found.files, found.source, found.commit)
	return nil
}

// sourceDate is the time of all files in archives: SOURCE_DATE_EPOCH (reproducible-builds.org), which must be the commit's date.
func sourceDate(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, errors.New("SOURCE_DATE_EPOCH must be the date of the commit, in seconds: git log -1 --format=%ct")
	}
	return time.Unix(seconds, 0).UTC(), nil
}
