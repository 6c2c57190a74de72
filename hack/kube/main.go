// Command kubeall is etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kubelet, kube-proxy and kubectl in one
// binary: the name it is called by (a symlink) says which of them it is.
//
// One binary instead of seven because linking is cheap and shipping is not: 145 MB to keep instead of 444 MB. Its price is
// that every program runs every other one's init functions, some 40 MB of memory each, which a test cluster can bear.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json, as the stock binaries have it
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as the stock binaries have them
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// roles maps the name that the binary is called by to what it then does.
var roles = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          daemon(apiserver.NewAPIServerCommand),
	"kube-controller-manager": daemon(kcm.NewControllerManagerCommand),
	"kube-proxy":              daemon(proxy.NewProxyCommand),
	"kube-scheduler":          daemon(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 daemon(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }), // it listens to signals itself
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	},
}

func main() {
	name := filepath.Base(os.Args[0])
	run, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "kubeall: called as %q; call it by one of these names (through a symlink): %s\n",
			name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	run()
}

func daemon(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}

func names() []string {
	out := make([]string, 0, len(roles))
	for name := range roles {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}
