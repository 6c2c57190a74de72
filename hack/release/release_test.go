package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	image  = "1111111111111111111111111111111111111111111111111111111111111111"
)

var date = time.Unix(1700000000, 0).UTC()

// seals creates a small release in a new directory, and seals it.
func seals(t *testing.T, key *ecdsa.PrivateKey) release {
	t.Helper()
	r := release{root: t.TempDir(), out: t.TempDir(), version: "v1.2.3", commit: commit, date: date, builder: "https://example.com/builder"}
	write(t, r.root, "go.sum", "example.com/linked v1.0.0 h1:AQIDBA==\nexample.com/linked v1.0.0/go.mod h1:BQYH\nexample.com/other v1.0.0 h1:CAkK\n")
	write(t, r.out, "assay-linux-amd64.tar.gz", "a program")
	write(t, r.out, "assay-linux-amd64.spdx.json", `{"packages": [
		{"externalRefs": [{"referenceType": "purl", "referenceLocator": "pkg:golang/example.com/linked@v1.0.0"}]}]}`)
	index := fmt.Sprintf(`{"manifests": [{"digest": "sha256:%s", "annotations": {"org.opencontainers.image.ref.name": "example.com/assay-worker:v1.2.3"}}]}`, image)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range map[string]string{"index.json": index} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, r.out, "assay-worker.oci.tar", b.String())
	if err := r.seal(key); err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSealedReleaseVerifies(t *testing.T) {
	key := newKey(t)
	r := seals(t, key)
	write(t, r.out, bundleFile, "{}") // of the release workflow
	found, err := verify(r.out, &key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	want := verified{files: 4, source: source + "@v1.2.3", commit: commit}
	if found != want {
		t.Errorf("found %+v, want %+v", found, want)
	}
}

func TestProvenanceNamesWhatWentIn(t *testing.T) {
	r := seals(t, nil)
	var s statement
	if err := json.Unmarshal([]byte(read(t, r.out, provenanceFile)), &s); err != nil {
		t.Fatal(err)
	}
	want := []resource{
		{URI: source + "@v1.2.3", Digest: map[string]string{"gitCommit": commit}},
		{URI: "pkg:golang/example.com/linked@v1.0.0", Digest: map[string]string{"dirHash": "01020304"}},
	}
	if diff := cmp.Diff(want, s.Predicate.Definition.Dependencies); diff != "" {
		t.Errorf("materials (-want +got):\n%s", diff)
	}
	var names []string
	for _, subject := range s.Subject {
		names = append(names, subject.Name)
	}
	if want := []string{"assay-linux-amd64.spdx.json", "assay-linux-amd64.tar.gz", "assay-worker.oci.tar", "example.com/assay-worker:v1.2.3"}; !slices.Equal(names, want) {
		t.Errorf("it is about %v, want %v", names, want)
	}
	if last := s.Subject[3]; last.Digest["sha256"] != image {
		t.Errorf("the image is %v, want sha256:%s", last.Digest, image)
	}
}

func TestAFlippedByteIsRefused(t *testing.T) {
	key := newKey(t)
	names, err := os.ReadDir(seals(t, key).out)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range names {
		t.Run(entry.Name(), func(t *testing.T) {
			r := seals(t, key)
			text := []byte(read(t, r.out, entry.Name()))
			text[len(text)/2] ^= 1
			write(t, r.out, entry.Name(), string(text))
			_, err := verify(r.out, &key.PublicKey)
			if want := strings.TrimSuffix(entry.Name(), ".sig"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error about %s", err, want)
			}
		})
	}
}

func TestRefusesWhatIsNotTheRelease(t *testing.T) {
	key, other := newKey(t), newKey(t)
	for name, test := range map[string]struct {
		change func(t *testing.T, r release)
		want   string
	}{
		"SignedByAnother": {func(t *testing.T, r release) {
			if err := r.seal(other); err != nil {
				t.Fatal(err)
			}
		}, "SHA256SUMS is not signed by this key"},
		"Unsigned": {func(_ *testing.T, r release) { _ = os.Remove(filepath.Join(r.out, signatureFile)) }, signatureFile},
		"Added":    {func(t *testing.T, r release) { write(t, r.out, "assay-linux-riscv64.tar.gz", "evil") }, "assay-linux-riscv64.tar.gz is not a file of this release"},
		"Missing": {func(_ *testing.T, r release) { _ = os.Remove(filepath.Join(r.out, "assay-worker.oci.tar")) },
			"assay-worker.oci.tar is missing"},
		"EnvelopeOfAnotherRelease": {func(t *testing.T, r release) {
			line, err := seal(key, []byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			write(t, r.out, envelopeFile, string(line))
		}, "provenance.intoto.jsonl is not provenance.json, signed by this key"},
	} {
		t.Run(name, func(t *testing.T) {
			r := seals(t, key)
			test.change(t, r)
			if _, err := verify(r.out, &key.PublicKey); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestSameReleaseSameBytes(t *testing.T) {
	key := newKey(t)
	first, second := seals(t, key), seals(t, key)
	for _, name := range []string{sumsFile, provenanceFile, signatureFile, envelopeFile} {
		if read(t, first.out, name) != read(t, second.out, name) {
			t.Errorf("%s differs between two builds of the same", name)
		}
	}
}

// TestOpenSSLVerifies verifies a release with openssl, as described in docs/release.md.
func TestOpenSSLVerifies(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("there is no openssl")
	}
	dir := t.TempDir()
	run := func(args ...string) error {
		out, err := exec.CommandContext(t.Context(), openssl, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	private, public, raw := filepath.Join(dir, "assay.key"), filepath.Join(dir, "assay.pub"), filepath.Join(dir, "raw")
	if err := run("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", private); err != nil {
		t.Fatal(err)
	}
	if err := run("pkey", "-in", private, "-pubout", "-out", public); err != nil {
		t.Fatal(err)
	}
	key, err := readPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	r := seals(t, key)
	if err := run("base64", "-d", "-in", filepath.Join(r.out, signatureFile), "-out", raw); err != nil {
		t.Fatal(err)
	}
	verify := []string{"dgst", "-sha256", "-verify", public, "-signature", raw, filepath.Join(r.out, sumsFile)}
	if err := run(verify...); err != nil {
		t.Errorf("openssl refuses the signature: %v", err)
	}
	write(t, r.out, sumsFile, read(t, r.out, sumsFile)+" ")
	if err := run(verify...); err == nil {
		t.Error("openssl accepts other sums")
	}
	if again, err := readPublicKey(public); err != nil || !again.Equal(&key.PublicKey) {
		t.Errorf("the public key is read as %v, %v", again, err)
	}
}

func TestKeysOfOtherKindsAreRefused(t *testing.T) {
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := x509.MarshalPKCS8PrivateKey(large)
	if err != nil {
		t.Fatal(err)
	}
	small, err := x509.MarshalECPrivateKey(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for name, test := range map[string]struct{ text, want string }{
		"WithParameters": {block("EC PARAMETERS", []byte("x")) + block("EC PRIVATE KEY", small), ""},
		"Curve":          {block("PRIVATE KEY", p384), "use an ECDSA key on P-256"},
		"Passphrase":     {block("ENCRYPTED PRIVATE KEY", []byte("x")), "without a passphrase"},
		"Broken":         {block("PRIVATE KEY", []byte("x")), "asn1"},
		"NoKey":          {"hello", "no key in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "key", test.text)
			_, err := readPrivateKey(filepath.Join(dir, "key"))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestArchivesHoldNothingOfTheirMaking(t *testing.T) {
	pack := func() (string, string) {
		in, out := t.TempDir(), t.TempDir()
		write(t, in, "b.1", "second")
		write(t, in, "a.1", "first")
		now := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(in, "b.1"), now, now); err != nil {
			t.Fatal(err)
		}
		pages, err := readTree(in, "man/")
		if err != nil {
			t.Fatal(err)
		}
		files := append([]file{{"assay", 0o755, []byte("program")}}, pages...)
		if err := errors.Join(writeTarGz(filepath.Join(out, "x.tar.gz"), date, files), writeZip(filepath.Join(out, "x.zip"), date, files)); err != nil {
			t.Fatal(err)
		}
		return read(t, out, "x.tar.gz"), read(t, out, "x.zip")
	}
	tgz, zipped := pack()
	if tgz2, zipped2 := pack(); tgz != tgz2 || zipped != zipped2 {
		t.Error("the same files gave two archives")
	}
	want := map[string]string{"assay": "-rwxr-xr-x program", "man/a.1": "-rw-r--r-- first", "man/b.1": "-rw-r--r-- second"}
	if diff := cmp.Diff(want, untar(t, tgz)); diff != "" {
		t.Errorf("the tar file holds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, unzip(t, zipped)); diff != "" {
		t.Errorf("the zip file holds (-want +got):\n%s", diff)
	}
}

func untar(t *testing.T, text string) map[string]string {
	t.Helper()
	uncompressed, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(uncompressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = header.FileInfo().Mode().String() + " " + string(data)
	}
}

func unzip(t *testing.T, text string) map[string]string {
	t.Helper()
	r, err := zip.NewReader(strings.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range r.File {
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = f.Mode().String() + " " + string(data)
	}
	return files
}

func TestChartBearsTheVersionOfTheRelease(t *testing.T) {
	for version, want := range map[string]struct{ chart, prerelease string }{
		"v1.2.3":      {"1.2.3", "false"},
		"v1.2.3-rc.1": {"1.2.3-rc.1", "true"},
	} {
		text, err := stampChart([]byte(read(t, "../../"+chartDir, "Chart.yaml")), version)
		if err != nil {
			t.Fatal(err)
		}
		var chart struct {
			Version, AppVersion string
			Annotations         map[string]string
		}
		if err := yaml.Unmarshal(text, &chart); err != nil {
			t.Fatal(err)
		}
		if chart.Version != want.chart || chart.AppVersion != version || chart.Annotations["artifacthub.io/prerelease"] != want.prerelease {
			t.Errorf("%s: the chart says %s, %s, prerelease %s", version, chart.Version, chart.AppVersion, chart.Annotations["artifacthub.io/prerelease"])
		}
		if images := chart.Annotations["artifacthub.io/images"]; !strings.Contains(images, "/assay-worker:"+version+"\n") {
			t.Errorf("%s: the images are\n%s", version, images)
		}
	}
}

func TestKrewManifestNamesEveryArchive(t *testing.T) {
	sums := map[string]string{}
	for _, p := range commandLine {
		name := "assay-" + p.String() + ".tar.gz"
		if p.OS == "windows" {
			name = "assay-" + p.String() + ".zip"
		}
		sums[name] = "sum of " + name
	}
	text, err := fillKrew(read(t, "../krew", "assay.yaml"), "v1.2.3", func(archive string) (string, error) {
		digest, ok := sums[archive]
		if !ok {
			return "", fmt.Errorf("there is no %s", archive)
		}
		return digest, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	if err := yaml.Unmarshal([]byte(text), &manifest); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range manifest.Spec.Platforms {
		name, ok := strings.CutPrefix(p.URI, "https://github.com/assay-project/assay/releases/download/v1.2.3/")
		if !ok {
			t.Errorf("%s is not of this version", p.URI)
		}
		found[name] = p.SHA256
	}
	if diff := cmp.Diff(sums, found); diff != "" || manifest.Spec.Version != "v1.2.3" {
		t.Errorf("version %s; archives (-want +got):\n%s", manifest.Spec.Version, diff)
	}
}

func TestBuildsOnlyVersionsOfCleanCommits(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git")
	}
	root := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), git, "-C", root, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write(t, root, "uncommitted", "")
	for version, want := range map[string]string{
		"3be447f": "invalid version", "1.2.3": "invalid version", "v1.2": "invalid version", "v1.2.3+dirty": "invalid version", "v01.2.3": "invalid version",
		"v1.2.3": "the tree differs from its commit (?? uncommitted)", "v1.2.3-rc.1": "the tree differs",
	} {
		r := release{root: root, out: filepath.Join(root, "dist"), version: version}
		if err := r.build(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", version, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "dist")); err == nil {
		t.Error("files were created anyway")
	}
}

func TestUsageIsExplained(t *testing.T) {
	for _, args := range [][]string{{}, {"-out", "x", "y"}, {"verify"}, {"verify", "-key", "k"}} {
		if err := run(t.Context(), args); err == nil || !strings.HasPrefix(err.Error(), "usage: ") {
			t.Errorf("%v: got %v", args, err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := run(t.Context(), []string{"-out", t.TempDir(), "-version", "v1.2.3"}); err == nil || !strings.Contains(err.Error(), "git log") {
		t.Errorf("got %v, want the command that tells the date", err)
	}
}
