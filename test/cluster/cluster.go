//go:build linux

// Package cluster runs a real Kubernetes control plane on this machine, for tests and the demo.
//
// etcd, kube-apiserver, kube-scheduler and kube-controller-manager are processes on free ports of the loopback address; a
// cluster starts in 4 to 6 seconds, takes 0.5 GB of memory, and leaves nothing behind. Its processes die with the program
// that started them, also if that is killed.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/assay-project/assay/test/cluster/kube"
)

// Options say what to run. The zero value is etcd and an API server.
type Options struct {
	// Scheduler runs kube-scheduler, with SchedulerConfig (a KubeSchedulerConfiguration in YAML) if given. How to connect
	// is filled in.
	Scheduler       bool
	SchedulerConfig []byte
	// ControllerManager runs kube-controller-manager. Without it no namespace ever ends, nothing is garbage-collected and
	// there are no default ServiceAccounts, hence no pods.
	ControllerManager     bool
	ControllerManagerArgs []string
	// APIServerArgs are more flags for kube-apiserver; they win over those that are set anyway.
	APIServerArgs []string
	// DisableAdmission names admission plug-ins that are on by default and shall be off.
	DisableAdmission []string
	// FakeNodes says that Nodes are mere objects without a kubelet: nobody taints them as not ready.
	FakeNodes bool
	// Core is for clusters without scheduler and controller manager: neither is compiled, which saves a third of the time that
	// the first start takes. Neither can be started later.
	Core bool
	// RunDir is where certificates, data and logs are kept; it must be new or empty. By default it is a temporary directory
	// that is removed at the end.
	RunDir string
	// Detach leaves the cluster running when this program ends, until Down(RunDir). It needs a RunDir.
	Detach bool
	// Progress is told what takes long: building Kubernetes the first time. nil discards it.
	Progress io.Writer
}

// Cluster is a running control plane. It is its own administrator: a User in system:masters. Its methods are safe for
// concurrent use, but for Stop, after which nothing else may be called.
type Cluster struct {
	*User

	dir      string
	server   string
	programs kube.Programs
	pki      *pki
	detached bool
	attached bool // somebody else started it
	cleanup  []func()

	mu        sync.Mutex
	processes []*process // in the order they were started
}

// Start runs a control plane and waits until it is ready for use. On error nothing is left running, and the error quotes
// the log of what did not start. The context bounds the start alone.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Detach && opts.RunDir == "" {
		return nil, errors.New("start a cluster: Detach needs a RunDir, by which the cluster can be found again")
	}
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	needed := kube.ControlPlane
	if opts.Core {
		needed = []string{kube.Etcd, kube.APIServer, kube.Kubectl}
	}
	programs, err := kube.Find(ctx, opts.Progress, needed...)
	if err != nil {
		return nil, err
	}
	dir, unlock, err := makeDir(opts.RunDir)
	if err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	c := &Cluster{dir: dir, programs: programs, detached: opts.Detach, cleanup: []func(){unlock}}
	if opts.RunDir == "" {
		c.cleanup = append(c.cleanup, func() { _ = os.RemoveAll(dir) })
	}
	if err := c.start(ctx, opts); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, opts Options) error {
	var err error
	if err = os.MkdirAll(c.LogDir(), 0o700); err != nil {
		return err
	}
	if err := (state{}).write(c.dir); err != nil { // from here on Down knows the directory
		return err
	}
	if c.pki, err = newPKI(filepath.Join(c.dir, pkiDir)); err != nil {
		return err
	}
	ports, err := c.holdPorts(5)
	if err != nil {
		return err
	}
	etcdClient, etcdPeer, secure, schedulerPort, managerPort := ports[0], ports[1], ports[2], ports[3], ports[4]
	c.server = "https://" + secure.address()
	pair, err := c.pki.users.client("admin", "system:masters")
	if err != nil {
		return err
	}
	if c.User, err = c.userAt(filepath.Join(c.dir, kubeconfigFile), "admin", pair); err != nil {
		return err
	}
	err = c.runAll(ctx,
		func() (Program, error) { return c.etcd(etcdClient, etcdPeer) },
		func() (Program, error) { return c.apiServer(etcdClient, secure, opts) },
	)
	if err != nil {
		return err
	}
	if err := c.exists(ctx, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "default"); err != nil {
		return err
	}
	if opts.ControllerManager {
		err := c.runAll(ctx, func() (Program, error) { return c.controllerManager(managerPort, opts) })
		if err != nil {
			return err
		}
		if err := c.exists(ctx, schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, "default", "default"); err != nil {
			return err
		}
	}
	if opts.Scheduler {
		return c.runAll(ctx, func() (Program, error) { return c.scheduler(kube.Scheduler, schedulerPort, opts.SchedulerConfig) })
	}
	return nil
}

// runAll runs programs one after the other.
func (c *Cluster) runAll(ctx context.Context, programs ...func() (Program, error)) error {
	for _, make := range programs {
		program, err := make()
		if err != nil {
			return err
		}
		if err := c.Run(ctx, program); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) holdPorts(n int) ([]port, error) {
	ports := make([]port, n)
	for i := range ports {
		var err error
		if ports[i], err = holdPort(); err != nil {
			return nil, err
		}
		c.cleanup = append(c.cleanup, ports[i].release)
	}
	return ports, nil
}

// exists waits until an object that the control plane makes itself is there.
func (c *Cluster) exists(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) error {
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	return WaitFor(ctx, resource.Resource+"/"+name, func(ctx context.Context) error {
		_, err := client.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return errors.New("it does not exist yet")
		}
		return err
	})
}

// Attach returns a cluster that another process started in dir. Its control plane cannot be paused, killed or restarted
// from here; Stop ends only what was started through the Cluster returned.
func Attach(dir string) (*Cluster, error) {
	s, err := readState(dir)
	if err != nil {
		return nil, fmt.Errorf("attach to the cluster in %s: %w", dir, err)
	}
	c := &Cluster{dir: dir, server: s.Server, programs: s.Programs, attached: true}
	if c.pki, err = loadPKI(filepath.Join(dir, pkiDir)); err != nil {
		return nil, fmt.Errorf("attach to the cluster in %s: %w", dir, err)
	}
	if c.User, err = c.loadUser(filepath.Join(dir, kubeconfigFile)); err != nil {
		return nil, fmt.Errorf("attach to the cluster in %s: %w", dir, err)
	}
	return c, nil
}

// Dir is the directory of the cluster: Attach and Down take it.
func (c *Cluster) Dir() string { return c.dir }

// LogDir is the directory of the programs' logs: one file each, NAME.log.
func (c *Cluster) LogDir() string { return filepath.Join(c.dir, logDir) }

// Program returns the path of one of Kubernetes' programs, "" if there is none of that name.
func (c *Cluster) Program(name string) string { return c.programs[name] }

// Run starts a program beside the control plane, waits until it is ready, and stops it with the cluster. If it does not
// become ready, the error quotes its log and it is stopped.
func (c *Cluster) Run(ctx context.Context, program Program) error {
	if p := c.find(program.Name); p != nil && p.running() {
		return fmt.Errorf("start %s: a program of that name is running already", program.Name)
	}
	p, err := startProcess(program, c.LogDir(), c.detached)
	if err != nil {
		return err
	}
	if err := c.add(p); err != nil {
		p.kill()
		return err
	}
	if err := p.waitReady(ctx); err != nil {
		p.kill()
		return err
	}
	return nil
}

// RunScheduler starts one more scheduler, for pods that ask for it by the schedulerName in its configuration.
func (c *Cluster) RunScheduler(ctx context.Context, name string, config []byte) error {
	held, err := holdPort()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.cleanup = append(c.cleanup, held.release)
	c.mu.Unlock()
	program, err := c.scheduler(name, held, config)
	if err != nil {
		return err
	}
	return c.Run(ctx, program)
}

// add notes a process, in the place of an earlier one of its name.
func (c *Cluster) add(p *process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := func(other *process) bool { return other.Name == p.Name }
	if i := slices.IndexFunc(c.processes, same); i >= 0 {
		c.processes[i] = p
	} else {
		c.processes = append(c.processes, p)
	}
	if c.attached {
		return nil // the directory is somebody else's
	}
	s := state{Server: c.server, Programs: c.programs}
	for _, p := range c.processes {
		record := processRecord{Name: p.Name, PID: p.cmd.Process.Pid}
		if started, _, err := procStat(record.PID); err == nil { // otherwise it has ended already
			record.Started = started
			s.Processes = append(s.Processes, record)
		}
	}
	return s.write(c.dir)
}

func (c *Cluster) find(name string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// PID returns the process ID of a program that was started through this Cluster.
func (c *Cluster) PID(name string) (int, error) {
	p, err := c.mine(name)
	if err != nil {
		return 0, err
	}
	return p.cmd.Process.Pid, nil
}

// mine returns the program of that name, if it was started through this Cluster.
func (c *Cluster) mine(name string) (*process, error) {
	if p := c.find(name); p != nil {
		return p, nil
	}
	if c.attached {
		return nil, fmt.Errorf("%s was started by another process; a test that disturbs it needs a cluster of its own", name)
	}
	return nil, fmt.Errorf("no program %s was started", name)
}

// Pause stops a program in its tracks: its connections stay open and nothing answers. Resume lets it go on.
func (c *Cluster) Pause(name string) error { return c.signal(name, syscall.SIGSTOP) }

// Resume lets a paused program go on.
func (c *Cluster) Resume(name string) error { return c.signal(name, syscall.SIGCONT) }

// Terminate asks a program to end (SIGTERM) and waits until it has.
func (c *Cluster) Terminate(ctx context.Context, name string) error {
	p, err := c.mine(name)
	if err != nil {
		return err
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("terminate %s: %w", name, context.Cause(ctx))
	}
}

// Kill ends a program at once, as a crash does.
func (c *Cluster) Kill(name string) error {
	p, err := c.mine(name)
	if err != nil {
		return err
	}
	p.kill()
	return nil
}

// Restart starts a program again, on the same ports with the same data, after killing it if it still runs.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	p, err := c.mine(name)
	if err != nil {
		return err
	}
	p.kill()
	return c.Run(ctx, p.Program)
}

func (c *Cluster) signal(name string, s syscall.Signal) error {
	p, err := c.mine(name)
	if err != nil {
		return err
	}
	return p.signal(s)
}

// Log returns the end of a program's log under its path, for messages of failed tests.
func (c *Cluster) Log(name string) string {
	return quoteLog(filepath.Join(c.LogDir(), name+".log"))
}

// Stop ends all programs, the last started first, and removes the directory if it is temporary; of a RunDir the logs and
// certificates stay. Everything is killed: its data is of no use to anybody, and a polite stop of the API server takes
// 9 seconds.
func (c *Cluster) Stop() {
	c.mu.Lock()
	processes, cleanup := c.processes, c.cleanup
	c.processes, c.cleanup = nil, nil
	c.mu.Unlock()
	for _, p := range slices.Backward(processes) {
		p.kill()
	}
	if !c.attached {
		_ = os.RemoveAll(filepath.Join(c.dir, etcdDataDir))
		_ = state{}.write(c.dir) // nothing runs; it tells Down that the directory may go
	}
	for _, f := range slices.Backward(cleanup) {
		f()
	}
}
