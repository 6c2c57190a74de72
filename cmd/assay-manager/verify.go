package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/cmd/assay-manager/internal/verify"
	"github.com/assay-project/assay/internal/fleet"
)

// verifyInterval is the interval between checks of the cluster.
const verifyInterval = time.Second

// verifyFlags are the flags of verify.
type verifyFlags struct {
	ruleFlags
	kubeconfig, namespace string
	timeout               time.Duration
}

func (f *verifyFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of Assay's own objects")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "timeout of the check")
	f.ruleFlags.register(flags, forRules) // the controller's flags define what it writes and how it records it
}

func newVerify() *cobra.Command {
	f := &verifyFlags{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that every ready Node has features and labels; used by helm test",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := f.run(ctrl.SetupSignalHandler())
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d nodes have features and labels\n", nodes)
			}
			return err
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// run waits until all checks pass, and returns the number of nodes. The error describes the failed check.
func (f *verifyFlags) run(ctx context.Context) (nodes int, err error) {
	settings, _, err := f.Load()
	if err != nil {
		return 0, err
	}
	config, err := restConfig(f.kubeconfig)
	if err != nil {
		return 0, err
	}
	scheme, err := fleet.Scheme()
	if err != nil {
		return 0, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return 0, err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, verifyInterval, f.timeout, true, func(ctx context.Context) (bool, error) {
		n, err := verify.Once(ctx, c, f.namespace, settings)
		if ctx.Err() != nil {
			return false, nil //nolint:nilerr // a timeout is not an error of the cluster
		}
		nodes, last = n, err
		return err == nil, nil
	})
	if err != nil && last != nil {
		return nodes, last
	}
	return nodes, err
}
