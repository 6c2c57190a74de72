package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/interp"
)

// TestAppletsDoAsOthersDo holds what GNU's programs print.
func TestAppletsDoAsOthersDo(t *testing.T) {
	const text = "vendor_id\t: GenuineIntel\nmodel name\t: Xeon (R) Gold\nflags\t\t: fpu avx avx512f\nempty:\n"
	for name, test := range map[string]struct {
		args   []string
		in     string
		want   string
		status int
	}{
		"GrepBasic":              {[]string{"grep", "(R)"}, text, "model name\t: Xeon (R) Gold\n", 0},
		"GrepExtended":           {[]string{"grep", "-E", "^(flags|empty)"}, text, "flags\t\t: fpu avx avx512f\nempty:\n", 0},
		"GrepGroupOfBasic":       {[]string{"grep", `^\(flags\|empty\)`}, text, "flags\t\t: fpu avx avx512f\nempty:\n", 0},
		"GrepOptionsInOneWord":   {[]string{"grep", "-ic", "XEON"}, text, "1\n", 0},
		"GrepNothing":            {[]string{"grep", "-q", "nvidia"}, text, "", 1},
		"GrepFixed":              {[]string{"grep", "-nF", "(R"}, text, "2:model name\t: Xeon (R) Gold\n", 0},
		"GrepOnlyMatches":        {[]string{"grep", "-o", "avx[^ ]*"}, text, "avx\navx512f\n", 0},
		"GrepWords":              {[]string{"grep", "-ow", "avx"}, text, "avx\n", 0},
		"GrepInverted":           {[]string{"grep", "-v", "[[:space:]]"}, text, "empty:\n", 0},
		"GrepBracketInBracket":   {[]string{"grep", "-c", "[]:]"}, text, "4\n", 0},
		"GrepMost":               {[]string{"grep", "-m2", "-c", ":"}, text, "2\n", 0},
		"GrepSeveral":            {[]string{"grep", "-c", "-e", "fpu", "-e", "Xeon"}, text, "2\n", 0},
		"GrepStarAtTheStart":     {[]string{"grep", "*b"}, "a*b\nab\n", "a*b\n", 0},
		"GrepInterval":           {[]string{"grep", `^a\{2\}$`}, "a\naa\na{2}\n", "aa\n", 0},
		"CutFields":              {[]string{"cut", "-d:", "-f2"}, text, " GenuineIntel\n Xeon (R) Gold\n fpu avx avx512f\n\n", 0},
		"CutWithoutDelimiter":    {[]string{"cut", "-d", ",", "-f", "2"}, "a,b\nc\n", "b\nc\n", 0},
		"CutOnlyDelimited":       {[]string{"cut", "-s", "-d,", "-f1,3-"}, "a,b,c,d\ne\n", "a,c,d\n", 0},
		"CutCharacters":          {[]string{"cut", "-c2-3"}, "abcd\n", "bc\n", 0},
		"SedSubstitute":          {[]string{"sed", "s/ .*//"}, "a b\nc\n", "a\nc\n", 0},
		"SedAll":                 {[]string{"sed", "s/a/b/g"}, "aaa\n", "bbb\n", 0},
		"SedSecond":              {[]string{"sed", "s/a/b/2"}, "aaa\n", "aba\n", 0},
		"SedGroups":              {[]string{"sed", `s/\([a-z]*\)=\(.*\)/\2:\1/`}, "key=value\n", "value:key\n", 0},
		"SedGroupsExtended":      {[]string{"sed", "-E", `s|([0-9]+)/([0-9]+)|\2-&|`}, "1/22\n", "22-1/22\n", 0},
		"SedPrint":               {[]string{"sed", "-n", "s/^model name.*: //p"}, text, "Xeon (R) Gold\n", 0},
		"SedLines":               {[]string{"sed", "-n", "2,/flags/p"}, text, "model name\t: Xeon (R) Gold\nflags\t\t: fpu avx avx512f\n", 0},
		"SedDelete":              {[]string{"sed", "/:$/d;1d"}, text, "model name\t: Xeon (R) Gold\nflags\t\t: fpu avx avx512f\n", 0},
		"SedNot":                 {[]string{"sed", "/fpu/!d"}, text, "flags\t\t: fpu avx avx512f\n", 0},
		"SedQuit":                {[]string{"sed", "1q"}, text, "vendor_id\t: GenuineIntel\n", 0},
		"SedDelimiterInText":     {[]string{"sed", `s/\/dev\///`}, "/dev/sda\n", "sda\n", 0},
		"SedDollarIsNothingElse": {[]string{"sed", `s/a/$1/`}, "a\n", "$1\n", 0},
		"Head":                   {[]string{"head", "-n2"}, "a\nb\nc\n", "a\nb\n", 0},
		"HeadInShort":            {[]string{"head", "-1"}, "a\nb\nc\n", "a\n", 0},
		"HeadTen":                {[]string{"head"}, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", 0},
		"Tail":                   {[]string{"tail", "-1"}, "a\nb\nc\n", "c\n", 0},
		"TailFrom":               {[]string{"tail", "-n", "+2"}, "a\nb\nc\n", "b\nc\n", 0},
		"Sort":                   {[]string{"sort"}, "b\na\nb\n", "a\nb\nb\n", 0},
		"SortUnique":             {[]string{"sort", "-u"}, "b\na\nb\n", "a\nb\n", 0},
		"SortNumbers":            {[]string{"sort", "-rn"}, "9\n10\n-1\n", "10\n9\n-1\n", 0},
		"SortField":              {[]string{"sort", "-t:", "-k2,2n"}, "a:10\nb:9\n", "b:9\na:10\n", 0},
		"SortVersions":           {[]string{"sort", "-V"}, "5.10.1\n5.9\n5.9.2\n", "5.9\n5.9.2\n5.10.1\n", 0},
		"Tee":                    {[]string{"tee"}, "a\n", "a\n", 0},
		"TrRanges":               {[]string{"tr", "a-z", "A-Z"}, "ab1\n", "AB1\n", 0},
		"TrClasses":              {[]string{"tr", "[:upper:]", "[:lower:]"}, "AB1\n", "ab1\n", 0},
		"TrDelete":               {[]string{"tr", "-d", `\n "`}, "a \"b\"\nc\n", "abc", 0},
		"TrDeleteOthers":         {[]string{"tr", "-cd", "[:alnum:]"}, "a-b\nc\n", "abc", 0},
		"TrSqueeze":              {[]string{"tr", "-s", " "}, "a   b  c\n", "a b c\n", 0},
		"TrOthers":               {[]string{"tr", "-cs", "a-z0-9", "_"}, "ab -- 12\n", "ab_12_", 0},
		"TrShort":                {[]string{"tr", "abc", "xy"}, "abc\n", "xyy\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c := &call{args: test.args[1:], stdin: strings.NewReader(test.in), stdout: bufio.NewWriter(&out)}
			status, err := applets[test.args[0]](c)
			if err := errors.Join(err, c.stdout.Flush()); err != nil {
				t.Fatal(err)
			}
			if out.String() != test.want || status != test.status {
				t.Errorf("%q prints %q (%d), want %q (%d)", test.args, out.String(), status, test.want, test.status)
			}
		})
	}
}

// TestAppletsRefuseWhatTheyDoNotKnow: an option that is ignored would make a script publish something else.
func TestAppletsRefuseWhatTheyDoNotKnow(t *testing.T) {
	for name, args := range map[string][]string{
		"Option": {"grep", "-P", "a"}, "NoPattern": {"grep"}, "NoValue": {"cut", "-d"}, "NoList": {"cut", "-d:"}, "List": {"cut", "-f0"},
		"NoScript": {"sed"}, "Command": {"sed", "y/a/b/"}, "LastLine": {"sed", "$d"}, "Flag": {"sed", "s/a/b/w"}, "NoEnd": {"sed", "s/a/b"},
		"Range": {"sed", "1,p"}, "Junk": {"sed", "pp"}, "BadPattern": {"grep", "-E", "("}, "OneSet": {"tr", "a"}, "Lines": {"head", "-nx"}, "Field": {"sort", "-k0"}, "Fields": {"sort", "-k1", "-k2"}, "Bytes": {"tail", "-c3"}, "InPlace": {"sed", "-i", "p", "f"},
	} {
		c := &call{args: args[1:], stdin: strings.NewReader("a\n"), stdout: bufio.NewWriter(&bytes.Buffer{})}
		if status, err := applets[args[0]](c); err == nil || status == 0 {
			t.Errorf("%s: %q is accepted", name, args)
		}
	}
}

func TestShellTakesArguments(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("echo $#:$1:$2\nfalse\necho after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args   []string
		in     string
		want   string
		status int
	}{
		"Script":      {[]string{script, "a", "b c"}, "", "2:a:b c\nafter\n", 0},
		"Options":     {[]string{"-e", script}, "", "0::\n", 1},
		"Unset":       {[]string{"-euc", "echo $none; echo after"}, "", "", 1},
		"OptionNames": {[]string{"-eo", "pipefail", "-c", "false | true; echo after"}, "", "", 1},
		"Command":     {[]string{"-c", "echo $1; exit 4", "name", "one"}, "", "one\n", 4},
		"Input":       {[]string{"-s"}, "echo hello", "hello\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out, faults bytes.Buffer
			err := run(t.Context(), test.args, strings.NewReader(test.in), &out, &faults)
			status := 0
			if s, ok := errors.AsType[interp.ExitStatus](err); ok {
				status, err = int(s), nil
			}
			if err != nil || out.String() != test.want || status != test.status {
				t.Errorf("it prints %q and ends with %d (%v, %s), want %q and %d", out.String(), status, err, &faults, test.want, test.status)
			}
		})
	}
}
