package docs_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"
)

// written are the pages that people write, with the README.
func written(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return slices.Contains(generated, file) })
	return append(files, "../README.md")
}

// valueName matches the name of a value of the chart, as in `controller.enableTaints=true` and --set controller.enableTaints=true.
var valueName = regexp.MustCompile("[`, ='](([a-z][A-Za-z]*)(?:\\.[a-z][A-Za-z]*)+)")

// isFile matches names that look like values and are files, hosts or features.
var isFile = regexp.MustCompile(`\.(yaml|yml|md|go|json|conf|io|dev|com|sh|tgz|tpl|d|sock)$`)

// TestValuesThatPagesNameExist looks up each value of the chart that a page, or the help of a command, names.
func TestValuesThatPagesNameExist(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(read(t, "../charts/assay/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(written(t), "cli.md") {
		for _, match := range valueName.FindAllStringSubmatch(read(t, file), -1) {
			name, top := match[1], match[2]
			if property(schema, top) == nil || isFile.MatchString(name) {
				continue
			}
			found++
			if !hasValue(schema, strings.Split(name, ".")) {
				t.Errorf("%s names the value %s, which the chart does not have", file, name)
			}
		}
	}
	if found < 80 {
		t.Errorf("only %d names of values were found; how are they written now?", found)
	}
}

// maxCell is the maximum number of words of a cell of a table: a longer one is read as little as a sentence of that length.
const maxCell = 40

// TestCellsOfTablesAreShort counts the words of the cells of all tables, without the targets of links. reference.md has the text of kubectl
// explain.
func TestCellsOfTablesAreShort(t *testing.T) {
	files := []string{"../charts/assay/README.md"}
	for _, pattern := range []string{"*.md", "design/*.md", "../*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	cells := 0
	for _, file := range files {
		if file == "reference.md" {
			continue
		}
		for line := range strings.Lines(prose(t, file)) {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			line = shownBy.ReplaceAllString(line, "")
			for cell := range strings.SplitSeq(strings.ReplaceAll(link.ReplaceAllString(line, "$1"), `\|`, ""), "|") {
				cells++
				if words := len(strings.Fields(cell)); words > maxCell {
					t.Errorf("%s has a cell of %d words, more than %d; move details below the table:\n%s", file, words, maxCell, strings.TrimSpace(cell))
				}
			}
		}
	}
	if cells < 3000 {
		t.Errorf("only %d cells were found", cells)
	}
}

// property returns the schema of a property, or nil.
func property(schema map[string]any, name string) map[string]any {
	properties, _ := schema["properties"].(map[string]any)
	child, _ := properties[name].(map[string]any)
	return child
}

// hasValue reports whether there is a value with this path. A value without properties of its own, such as resources, may contain anything.
func hasValue(schema map[string]any, path []string) bool {
	for _, name := range path {
		if schema["properties"] == nil {
			return true
		}
		if schema = property(schema, name); schema == nil {
			return false
		}
	}
	return true
}

var (
	// flagName matches a flag in a sentence or a command.
	flagName = regexp.MustCompile("[` ](--[a-z][a-z-]+[a-z])")
	// declaredFlag matches the declaration of a flag in the code of a program.
	declaredFlag = regexp.MustCompile(`(?s)(?:Var|VarP|Func|Bool|String|Int|Duration|MarkDeprecated|MarkHidden)\([^"()]{0,80}"([a-z][a-z-]+)"|(?:[Nn]ame: +|(?:[fF]lag|gate)\("|listFlag\(fs, )"?([a-z][a-z-]+)"|"--([a-z][a-z-]+)[" =]`)
)

// foreignFlags are flags of other programs that the pages use.
var foreignFlags = map[string]string{
	"kubectl": "all all-namespaces as containers dry-run field-manager field-selector filename for force from-file grace-period ignore-not-found image kubeconfig " +
		"namespace overwrite patch patch-file replicas selector server-side show-labels subresource timeout token type validate watch wait serviceaccount clusterrole " +
		"kustomize request-timeout cascade context sort-by duration types",
	"curl":                    "insecure header",
	"helm":                    "create-namespace set set-string set-json set-file values version take-ownership wait reuse-values reset-then-reuse-values dry-run no-hooks devel verify keyring show-only",
	"kubelet and API server":  "register-with-taints node-labels admission-control-config-file config feature-gates enable-admission-plugins emulated-version root-dir",
	"sha256sum":               "check ignore-missing",
	"Cluster Autoscaler":      "cloud-provider node-info-cache-expire-time",
	"cosign, git, ctr, crane": "key signature insecure-ignore-tlog type sig tag depth branch signer base64-decode bundle new-bundle-format certificate-identity certificate-oidc-issuer",
}

// TestFlagsThatPagesNameExist looks up each flag that a page names in the code of the programs.
func TestFlagsThatPagesNameExist(t *testing.T) {
	known := map[string]bool{"help": true}
	for _, dir := range []string{"../cmd", "../internal", "../settings", "../controller", "../test", "../hack"} {
		for _, match := range declaredFlag.FindAllStringSubmatch(sources(t, dir), -1) {
			known[match[1]+match[2]+match[3]] = true
		}
	}
	for _, names := range foreignFlags {
		for _, name := range strings.Fields(names) {
			known[name] = true
		}
	}
	found := 0
	for _, file := range written(t) {
		for _, match := range flagName.FindAllStringSubmatch(read(t, file), -1) {
			found++
			if !known[strings.TrimPrefix(match[1], "--")] {
				t.Errorf("%s names the flag %s, which no program declares", file, match[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d flags were found; how are they written now?", found)
	}
}

// quotedMessage matches the first column of the table of messages.
var quotedMessage = regexp.MustCompile("(?m)^\\| `([^`]{8,})`(?: on an? [a-z]+)? \\| ")

// TestTroubleshootingQuotesRealMessages looks up the messages that the sections on errors and warnings quote.
func TestTroubleshootingQuotesRealMessages(t *testing.T) {
	_, page, _ := strings.Cut(read(t, "troubleshooting.md"), "\n## Errors in rules\n")
	page, _, _ = strings.Cut(page, "\n## Events")
	code := sources(t, "../rules") + sources(t, "../api")
	found := 0
	for _, match := range quotedMessage.FindAllStringSubmatch(page, -1) {
		found++
		text := constant(match[1])
		if !strings.Contains(code, text) {
			t.Errorf("the page quotes %q, and no code has %q", match[1], text)
		}
	}
	if found < 7 {
		t.Errorf("only %d messages were found", found)
	}
}

// constant returns the longest part of a message without its arguments: the code has a verb for these.
func constant(message string) string {
	for _, argument := range []string{" …?", "…", " rakc", "9999", `"now" `, "/sys", "not mounted", "controller have", "taints are disabled"} {
		if before, after, ok := strings.Cut(message, argument); ok {
			message = strings.TrimSpace(before)
			if len(after) > len(before) {
				message = after
			}
		}
	}
	return message
}

var (
	// sentence matches three or more words in a sentence of a page that are a message or a title, not a command or an expression.
	sentence = regexp.MustCompile("`((?:/sys|[A-Za-z]+)(?: [A-Za-z]{2,},?){2,}[^`{}<>=&|$]*)`")
	// otherPrograms matches commands, and messages of the API server, Helm and the kernel.
	otherPrograms = regexp.MustCompile(`^(assay|kubectl|helm|make|git|go|nfd|cosign|crane|openssl|skopeo|max|count|export|ssh|failed calling webhook|values don|` +
		`cannot patch|no such file|CustomResourceDefinition …)`)
)

// TestPagesQuoteRealMessages looks up the messages that sentences and tables quote, and the titles of assay ui.
func TestPagesQuoteRealMessages(t *testing.T) {
	var code strings.Builder
	for _, dir := range []string{"../rules", "../api", "../controller", "../internal", "../cmd", "../webhook", "../extender", "../discovery", "../certs"} {
		code.WriteString(sources(t, dir))
	}
	for _, pattern := range []string{"../charts/assay/templates/*.tpl", "../charts/assay/files/*/*.yaml", "../charts/assay/crds/*.yaml", "../cmd/assay/ui/templates/*.html"} {
		files, err := filepath.Glob(pattern)
		if err != nil || files == nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			code.WriteString(read(t, file))
		}
	}
	found := 0
	for _, file := range written(t) {
		if file == "style.md" { // messages of earlier versions
			continue
		}
		for _, match := range sentence.FindAllStringSubmatch(prose(t, file), -1) {
			if otherPrograms.MatchString(match[1]) {
				continue
			}
			found++
			if text := constant(match[1]); !strings.Contains(code.String(), text) {
				t.Errorf("%s quotes %q, and no code has %q", file, match[1], text)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d messages were found; how are they written now?", found)
	}
}

var (
	// recorded matches an attribute of an instance, or of a feature, in a recorded NodeFeature.
	recorded = regexp.MustCompile(`(?m)^ +([A-Za-z_.]+): "?([^"\n{}\[\]]+?)"?$`)
	// compared matches a term that compares an element with values.
	compared = regexp.MustCompile(`([A-Za-z_.]+): \{op: In, value: \[([^\]]*)\]`)
)

// TestValuesInExamplesCanOccur compares the values in the examples with those that machines of test/hosts publish: a value that occurs there
// in another case only, such as ACTIVE for the state of a port, is never found.
func TestValuesInExamplesCanOccur(t *testing.T) {
	machines, err := filepath.Glob("../test/hosts/*/nodefeature.yaml")
	if err != nil || len(machines) < 5 {
		t.Fatalf("%d machines: %v", len(machines), err)
	}
	exact, folded := map[string]bool{}, map[string]string{}
	for _, file := range machines {
		for _, match := range recorded.FindAllStringSubmatch(read(t, file), -1) {
			key := match[1] + "=" + match[2]
			exact[key], folded[strings.ToLower(key)] = true, match[2]
		}
	}
	examples, err := filepath.Glob("../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	library, err := filepath.Glob("../library/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range slices.Concat(written(t), examples, library) {
		for _, match := range compared.FindAllStringSubmatch(read(t, file), -1) {
			for value := range strings.SplitSeq(match[2], ",") {
				value = strings.Trim(value, `"' `)
				key := match[1] + "=" + value
				if exact[key] {
					checked++
				} else if real := folded[strings.ToLower(key)]; real != "" && !wrongOnPurpose[key] {
					t.Errorf("%s compares %s with %q; machines have %q", file, match[1], value, real)
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d values were compared with those of machines", checked)
	}
}

// wrongOnPurpose are values of examples that show a warning.
var wrongOnPurpose = map[string]bool{"vendor=10DE": true}

// TestValuesAreCalledByTheirDefaults compares the numbers that pages give for values, as in `worker.port` 8080, with the defaults of the chart.
func TestValuesAreCalledByTheirDefaults(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "../charts/assay/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range written(t) {
		for _, match := range numberOfValue.FindAllStringSubmatch(read(t, file), -1) {
			var value any = values
			for key := range strings.SplitSeq(match[1], ".") {
				child, _ := value.(map[string]any)
				value = child[key]
			}
			found++
			if got := fmt.Sprint(value); got != match[2] {
				t.Errorf("%s says that %s is %s; its default is %s", file, match[1], match[2], got)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d defaults were found; how are they written now?", found)
	}
}

// numberOfValue matches a value of the chart and its default.
var numberOfValue = regexp.MustCompile("`([a-z]+(?:\\.[A-Za-z]+)+)`,?(?: is)? (\\d+)\\b")

// workerKey matches a key of the configuration of the worker.
var workerKey = regexp.MustCompile("`(?:worker\\.config\\.)?((?:core|sources)(?:\\.[A-Za-z]+)+)[`:=]")

// TestKeysOfTheWorkerExist looks up the keys of the worker's configuration that pages name, such as `core.shareFeatures`.
func TestKeysOfTheWorkerExist(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(read(t, "../charts/assay/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	config := property(property(schema, "worker"), "config")
	found := 0
	for _, file := range written(t) {
		for _, match := range workerKey.FindAllStringSubmatch(read(t, file), -1) {
			found++
			if !hasValue(config, strings.Split(match[1], ".")) {
				t.Errorf("%s names the key %s, which the worker does not have", file, match[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d keys were found; how are they written now?", found)
	}
}

var (
	// verbOfAssay matches a command of assay in a sentence or on a line of an example.
	verbOfAssay = regexp.MustCompile("(?m)`(assay [a-z][^`\n]*)`|^ *(?:\\$ )?(assay [a-z][^\n]*)$")
	// section matches a section of cli.md, which cmd/assay compares with the program.
	section = regexp.MustCompile(`(?m)^## (.+)$`)
	// flagsOfRow matches the names of a flag in the first column of a table or in a link to it, and flagOfCommand those of a command.
	flagsOfRow    = regexp.MustCompile("(?m)(?:^\\| |\\[)`(?:(-[a-z]), )?(--[a-z-]+)")
	flagOfCommand = regexp.MustCompile(`(?:^| )(--?[a-z][a-z-]*)`)
)

// TestCommandsThatPagesShowExist looks up the verbs of assay on the pages, and that each verb has the flags that it is shown with.
func TestCommandsThatPagesShowExist(t *testing.T) {
	verbs, text := map[string]map[string]bool{}, read(t, "cli.md")
	starts := section.FindAllStringSubmatchIndex(text, -1)
	for i, start := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		flags := map[string]bool{"--help": true}
		for _, row := range flagsOfRow.FindAllStringSubmatch(text[start[0]:end], -1) {
			flags[row[1]], flags[row[2]] = true, true
		}
		flags["#settings"] = strings.Contains(text[start[0]:end], "(#settings)")
		flags["#clusters"] = strings.Contains(text[start[0]:end], "(#clusters)")
		verbs[text[start[2]:start[3]]] = flags
	}
	found := 0
	for _, file := range written(t) {
		for _, match := range verbOfAssay.FindAllStringSubmatch(read(t, file), -1) {
			command, _, _ := strings.Cut(match[1]+match[2], " #")
			command, _, _ = strings.Cut(command, " | ")
			words := strings.Fields(command)
			verb := "assay " + words[1]
			for _, word := range words[2:] {
				if verbs[verb+" "+word] == nil {
					break
				}
				verb += " " + word
			}
			flags := verbs[verb]
			found++
			if flags == nil {
				t.Errorf("%s shows %q, and there is no %s", file, command, verb)
				continue
			}
			for _, flag := range flagOfCommand.FindAllStringSubmatch(strings.TrimPrefix(command, verb), -1) {
				name := flag[1]
				if !flags[name] && !(flags["#settings"] && verbs["Settings"][name]) && !(flags["#clusters"] && verbs["Clusters"][name]) {
					t.Errorf("%s shows %q, and %s has no flag %s", file, command, verb, name)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d commands were found; how are they written now?", found)
	}
}

// target matches a target of make in a sentence or in an example.
var target = regexp.MustCompile("(?m)(?:`| {4}|^)make ([a-z][a-z-]*)")

// TestTargetsOfMakeExist looks up the targets of make that pages name.
func TestTargetsOfMakeExist(t *testing.T) {
	makefile, found := "\n"+read(t, "../Makefile"), 0
	for _, file := range everyPage(t) {
		for _, match := range target.FindAllStringSubmatch(read(t, file), -1) {
			found++
			if !strings.Contains(makefile, "\n"+match[1]+":") {
				t.Errorf("%s names make %s, which the Makefile does not have", file, match[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d targets were found; how are they written now?", found)
	}
}

var (
	// fileName matches a file or a directory of the repository in a sentence.
	fileName = regexp.MustCompile("`((?:api|charts|cmd|controller|discovery|docs|examples|extender|hack|internal|library|rules|settings|test|webhook)/[\\w./{},-]+)`")
	// testName matches a test or a benchmark in a sentence.
	testName = regexp.MustCompile("`((?:Test|Benchmark)[A-Z]\\w+)`")
)

// TestFilesAndTestsThatPagesNameExist looks up the files and the tests that pages name without a link.
func TestFilesAndTestsThatPagesNameExist(t *testing.T) {
	var tests strings.Builder
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			tests.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range everyPage(t) {
		text := read(t, file)
		for _, match := range fileName.FindAllStringSubmatch(text, -1) {
			if strings.ContainsAny(match[1], "{}") || strings.Contains(match[1], "/ID.") {
				continue // several, or a name that the reader chooses
			}
			found++
			path := strings.TrimSuffix(match[1], "/")
			if i := strings.LastIndexByte(path, '.'); i > strings.LastIndexByte(path, '/') && unicode.IsUpper(rune(path[i+1])) {
				path = path[:i] // the package of a name in Go
			}
			if _, err := os.Stat(filepath.Join("..", path)); err != nil {
				t.Errorf("%s names %s, which does not exist", file, match[1])
			}
		}
		for _, match := range testName.FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(tests.String(), "func "+match[1]+"(") {
				t.Errorf("%s names %s, which does not exist", file, match[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d names were found; how are they written now?", found)
	}
}

// everyPage returns the pages that people write, of all directories.
func everyPage(t *testing.T) []string {
	t.Helper()
	files := written(t)
	for _, pattern := range []string{"design/*.md", "../[A-Z]*.md", "../charts/assay/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	return slices.DeleteFunc(slices.Compact(files), func(file string) bool { return file == "../CHANGELOG.md" }) // of other versions
}
