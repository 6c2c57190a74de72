package convert

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/facts"
)

const cases = "../../../rules/convert/testdata/"

func run(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, notes bytes.Buffer
	cmd := NewCommand()
	cmd.SilenceErrors = true
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), notes.String(), err
}

// compile compiles all objects in a YAML stream, which must not have errors.
func compile(t *testing.T, stream string) *rules.Program {
	t.Helper()
	roots, err := compose.ParseTrees("converted", []byte(stream))
	if err != nil {
		t.Fatal(err)
	}
	var sets []*rules.RuleSet
	for _, root := range roots {
		var name string
		for i, n := range root.Content[0].Content {
			if n.Value == "metadata" {
				name = root.Content[0].Content[i+1].Content[1].Value
			}
		}
		for i, n := range root.Content[0].Content {
			if n.Value != "spec" {
				continue
			}
			spec, err := compose.Typed(root.Content[0].Content[i+1])
			if err != nil {
				t.Fatal(err)
			}
			set, report := rules.CompileSpec(name, spec, rules.Options{})
			if len(report.Errors) > 0 {
				t.Fatal(report.Errors.ToAggregate())
			}
			sets = append(sets, set)
		}
	}
	return rules.Link(rules.Options{}, sets...)
}

func attributes(m map[string]string) nfdv1alpha1.AttributeFeatureSet {
	return nfdv1alpha1.AttributeFeatureSet{Elements: m}
}

// The converted rules of the documented examples must label the nodes for which the originals were written.
func TestConvertedRulesLabelNodes(t *testing.T) {
	flags := func(names ...string) nfdv1alpha1.FlagFeatureSet {
		set := nfdv1alpha1.FlagFeatureSet{Elements: map[string]nfdv1alpha1.Nil{}}
		for _, n := range names {
			set.Elements[n] = nfdv1alpha1.Nil{}
		}
		return set
	}
	instance := func(m map[string]string) nfdv1alpha1.InstanceFeatureSet {
		return nfdv1alpha1.InstanceFeatureSet{Elements: []nfdv1alpha1.InstanceFeature{{Attributes: m}}}
	}
	const ns = "feature.node.kubernetes.io/"
	tests := map[string]struct {
		kind, file string
		features   nfdv1alpha1.Features
		want       map[string]string
	}{
		"DellBecomesIdrac": {
			"ironic", "ironic-seed.in.yaml",
			nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"system.dmiid": attributes(map[string]string{"sys_vendor": "Dell Inc."})}},
			map[string]string{ns + "driver": "idrac"},
		},
		"OthersStayAsTheyAre": {
			"ironic", "ironic-seed.in.yaml",
			nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"system.dmiid": attributes(map[string]string{"sys_vendor": "Acme"})}},
			map[string]string{},
		},
		"EveryRuleOfTheGuide": {
			"matchon", "matchon-guide.in.yaml",
			nfdv1alpha1.Features{
				Flags: map[string]nfdv1alpha1.FlagFeatureSet{
					"kernel.loadedmodule": flags("kmod1", "kmod2", "vendor_kmod1", "vendor_kmod2", "some_kmod1"),
					"cpu.cpuid":           flags("VMX"),
				},
				Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
					"kernel.config": attributes(map[string]string{"GCC_VERSION": "100101"}),
					"system.name":   attributes(map[string]string{"nodename": "node-datacenter1-rack7-server3"}),
				},
				Instances: map[string]nfdv1alpha1.InstanceFeatureSet{
					"pci.device": instance(map[string]string{"vendor": "15b3", "device": "1017"}),
					"usb.device": instance(map[string]string{"vendor": "1d6b", "device": "0003", "serial": "090129a"}),
				},
			},
			map[string]string{
				ns + "custom-my.kernel.feature":                         "true",
				ns + "custom-my.pci.feature":                            "true",
				ns + "custom-my.usb.feature":                            "true",
				ns + "custom-my.combined.feature":                       "true",
				"vendor.feature.node.kubernetes.io/accumulated.feature": "true",
				ns + "custom-my.kernel.featureneedscpu":                 "true",
				ns + "custom-my.kernel.modulecompiler":                  "true",
				"profile.node.kubernetes.io/my-datacenter":              "datacenter-1",
			},
		},
		"NoneOfTheGuide": {
			"matchon", "matchon-guide.in.yaml",
			nfdv1alpha1.Features{
				Flags:      map[string]nfdv1alpha1.FlagFeatureSet{"kernel.loadedmodule": flags("kmod1", "some_kmod1")},
				Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"kernel.config": attributes(map[string]string{"GCC_VERSION": "90000", "KVM_INTEL": "n"})},
				Instances:  map[string]nfdv1alpha1.InstanceFeatureSet{"pci.device": instance(map[string]string{"vendor": "15b3", "device": "9999"})},
			},
			map[string]string{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, _, err := run(t, "", tt.kind, filepath.Join(cases, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			outcome := compile(t, out).Eval(rules.Input{Node: rules.Node{Name: "n1"}, Facts: facts.New(&tt.features, nil)})
			got := map[string]string{}
			for k, v := range outcome.Labels() {
				got[k] = v
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestConvertListsWhatIsLost(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(cases, "ironic-seed.in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out, notes, err := run(t, string(source), "ironic", "-")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"{node.auto_discovered}: no equivalent", "/driver_info/ipmi_password left out", "bmc_address is read as a variable"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s", want, notes)
		}
	}
	for _, secret := range []string{"pa$$w0rd", "calvin"} {
		if strings.Contains(notes+out, secret) {
			t.Errorf("the secret %s is shown", secret)
		}
	}
	if out, _, err := run(t, string(source), "ironic", "--strict", "-"); err == nil || out != "" {
		t.Errorf("strict: error %v, output %q", err, out)
	}
}

func TestConvertRefuses(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#"), 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		in   string
		want string
	}{
		"ADirectory":  {[]string{"ironic", t.TempDir()}, "", "not a regular file"},
		"ALargeFile":  {[]string{"matchon", large}, "", "larger than 4 MiB"},
		"LargeStdin":  {[]string{"matchon", "-"}, strings.Repeat("#", 5<<20), "larger than 4 MiB"},
		"NoSuchFile":  {[]string{"matchon", "/nowhere/at.all"}, "", "no such file"},
		"Nothing":     {[]string{"nfd-openshift", "-"}, "", "no rules to convert"},
		"BinaryInput": {[]string{"ironic", "-"}, "\x7fELF\x00", "binary"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, _, err := run(t, tt.in, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}
