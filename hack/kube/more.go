//go:build !core

package main

import (
	"context"

	"github.com/spf13/cobra"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var more = map[string]func(){
	"kube-controller-manager": daemon(kcm.NewControllerManagerCommand),
	"kube-proxy":              daemon(proxy.NewProxyCommand),
	"kube-scheduler":          daemon(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 daemon(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }), // handles signals itself
}
