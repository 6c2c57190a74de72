// Command kubeall is etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kubelet, kube-proxy and kubectl in one binary:
// the name by which it is called (a symlink) selects the program. Built with the tag core it only contains etcd, kube-apiserver and
// kubectl, which takes two thirds of the time.
//
// One binary instead of seven saves disk space, 145 MB instead of 444 MB. On the other hand, every program runs the init functions
// of all others, which takes about 40 MB of memory each.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json, as in the stock binaries
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as in the stock binaries
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// core maps the name by which the binary is called to its main function; more has the others.
var core = map[string]func(){
	"etcd":           func() { etcdmain.Main(os.Args) },
	"kube-apiserver": daemon(apiserver.NewAPIServerCommand),
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	},
}

func main() {
	name := filepath.Base(os.Args[0])
	roles := maps.Clone(core)
	maps.Copy(roles, more)
	run, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "kubeall: called as %q; call it by one of these names (through a symlink): %s\n",
			name, strings.Join(slices.Sorted(maps.Keys(roles)), ", "))
		os.Exit(2)
	}
	run()
}

func daemon(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}
