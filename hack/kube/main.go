// Command kubeall is etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kubelet, kube-proxy and kubectl in one
// binary: the name it is called by (a symlink) says which of them it is. Built with the tag core it is etcd, kube-apiserver and
// kubectl alone, which takes two thirds of the time.
//
// One binary instead of seven because linking is cheap and shipping is not: 145 MB to keep instead of 444 MB. Its price is
// that every program runs every other one's init functions, some 40 MB of memory each, which a test cluster can bear.
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
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json, as the stock binaries have it
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as the stock binaries have them
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// core maps the name that the binary is called by to what it then does; more has the rest.
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
