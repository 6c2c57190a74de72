// Command numascheduler is the scheduler of scheduler-plugins with one of its plug-ins, NodeResourceTopologyMatch, which reads the objects
// that `assay-worker topology` publishes. It is built for test/numa only. The other plug-ins would bring cloud clients and load watchers.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // its arguments
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(noderesourcetopology.Name, noderesourcetopology.New))))
}
