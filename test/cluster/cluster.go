//go:build linux

// Package cluster runs a real Kubernetes control plane on this machine, for tests and the demo.
//
// etcd, kube-apiserver, kube-scheduler and kube-controller-manager are processes that listen on free ports of the loopback address.
// A cluster starts in 4 to 6 seconds, takes 0.5 GB of memory, and is removed completely. Its processes end with the program that
// started them, even if that program is killed.
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
	"k8s.io/client-go/tools/clientcmd"

	"github.com/assay-project/assay/test/cluster/kube"
)

// Options configure what to run. The zero value is etcd and an API server.
type Options struct {
	// Scheduler runs kube-scheduler, with SchedulerConfig (a KubeSchedulerConfiguration in YAML) if set. The connection settings
	// are added.
	Scheduler       bool
	SchedulerConfig []byte
	// ControllerManager runs kube-controller-manager. Without it namespaces are never deleted completely, there is no garbage
	// collection, and there are no default ServiceAccounts and therefore no pods.
	ControllerManager     bool
	ControllerManagerArgs []string
	// APIServerArgs are additional flags for kube-apiserver; they override the default ones.
	APIServerArgs []string
	// DisableAdmission lists admission plugins to disable that are enabled by default.
	DisableAdmission []string
	// FakeNodes is set if Nodes are only objects without a kubelet: they are not tainted as not ready.
	FakeNodes bool
	// Core is for clusters without scheduler and controller manager: neither is compiled, which saves a third of the first start.
	// They cannot be started later.
	Core bool
	// EtcdQuota is the maximum size of etcd's database in bytes; 0: large enough for all tests.
	EtcdQuota int64
	// RunDir is the directory for certificates, data and logs; it must be new or empty. By default it is a temporary directory that
	// is removed at the end.
	RunDir string
	// Detach keeps the cluster running when this program ends, until Down(RunDir). It requires a RunDir.
	Detach bool
	// Progress receives messages about slow operations: building Kubernetes the first time. nil discards them.
	Progress io.Writer
}

// Cluster is a running control plane, and its administrator: a User in system:masters. Its methods are safe for concurrent use,
// except for Stop, after which no other method may be called.
type Cluster struct {
	*User

	dir      string
	server   string
	etcdAt   string  // host:port
	options  Options // of Start
	programs kube.Programs
	pki      *pki
	detached bool
	attached bool // started by another process
	cleanup  []func()

	mu        sync.Mutex
	processes []*process // in the order in which they were started
}

// Start runs a control plane and waits until it is ready. On error it stops everything, and the error quotes the log of the program
// that failed. The context only applies to the start.
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
	c := &Cluster{dir: dir, programs: programs, options: opts, detached: opts.Detach, cleanup: []func(){unlock}}
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
	if err := (state{}).write(c.dir); err != nil { // from here on Down recognizes the directory
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
	c.server, c.etcdAt = "https://"+secure.address(), etcdClient.address()
	pair, err := c.pki.users.client("admin", "system:masters")
	if err != nil {
		return err
	}
	if c.User, err = c.userAt(filepath.Join(c.dir, kubeconfigFile), "admin", pair); err != nil {
		return err
	}
	err = c.runAll(ctx,
		func() (Program, error) { return c.etcd(etcdClient, etcdPeer) },
		func() (Program, error) { return c.apiServer(kube.APIServer, c.etcdAt, secure) },
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

// holdPorts reserves ports until the cluster is stopped.
func (c *Cluster) holdPorts(n int) ([]port, error) {
	ports := make([]port, n)
	for i := range ports {
		var err error
		if ports[i], err = holdPort(); err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.cleanup = append(c.cleanup, ports[i].release)
		c.mu.Unlock()
	}
	return ports, nil
}

// exists waits until an object exists that the control plane creates itself.
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

// Attach returns a cluster that another process started in dir. Its control plane cannot be paused, killed or restarted by this
// process; Stop only ends programs that were started through the returned Cluster.
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

// Dir returns the directory of the cluster, for Attach and Down.
func (c *Cluster) Dir() string { return c.dir }

// LogDir returns the directory of the programs' logs, which are named NAME.log.
func (c *Cluster) LogDir() string { return filepath.Join(c.dir, logDir) }

// Program returns the path of a program of Kubernetes, "" if there is none of that name.
func (c *Cluster) Program(name string) string { return c.programs[name] }

// Run starts an additional program, waits until it is ready, and stops it with the cluster. If it does not become ready, Run stops
// it, and the error quotes its log.
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

// RunScheduler starts an additional scheduler, for pods with the schedulerName in its configuration.
func (c *Cluster) RunScheduler(ctx context.Context, name string, config []byte) error {
	ports, err := c.holdPorts(1)
	if err != nil {
		return err
	}
	program, err := c.scheduler(name, ports[0], config)
	if err != nil {
		return err
	}
	return c.Run(ctx, program)
}

// File returns the path of a certificate or key of the control plane: apiserver.crt and apiserver.key are valid for the loopback
// address, and apiserver-etcd.crt and apiserver-etcd.key are those of etcd's client.
func (c *Cluster) File(name string) string { return c.pki.file(name) }

// EtcdAddress returns host:port of etcd.
func (c *Cluster) EtcdAddress() string { return c.etcdAt }

// RunAPIServer starts an additional API server on the same etcd, and returns its administrator. It reaches etcd at the given address.
func (c *Cluster) RunAPIServer(ctx context.Context, name, etcd string) (*User, error) {
	ports, err := c.holdPorts(1)
	if err != nil {
		return nil, err
	}
	program, err := c.apiServer(name, etcd, ports[0])
	if err != nil {
		return nil, err
	}
	if err := c.Run(ctx, program); err != nil {
		return nil, err
	}
	return c.At("https://" + ports[0].address())
}

// At returns the administrator of this cluster, who reaches its API server at another URL.
func (c *Cluster) At(url string) (*User, error) {
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	for _, entry := range config.Clusters {
		entry.Server = url
	}
	file, err := os.CreateTemp(c.dir, "admin-*.kubeconfig")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(file.Close(), clientcmd.WriteToFile(*config, file.Name())); err != nil {
		return nil, err
	}
	return c.loadUser(file.Name())
}

// add records a process, and replaces an earlier one of the same name.
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
		return nil // another process owns the directory
	}
	s := state{Server: c.server, Programs: c.programs}
	for _, p := range c.processes {
		record := processRecord{Name: p.Name, PID: p.cmd.Process.Pid}
		if started, _, err := procStat(record.PID); err == nil { // otherwise it has already ended
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

// Ended returns a channel that is closed when the running program of that name ends.
func (c *Cluster) Ended(name string) (<-chan struct{}, error) {
	p, err := c.mine(name)
	if err != nil {
		return nil, err
	}
	return p.done, nil
}

// mine returns the program of that name if it was started through this Cluster.
func (c *Cluster) mine(name string) (*process, error) {
	if p := c.find(name); p != nil {
		return p, nil
	}
	if c.attached {
		return nil, fmt.Errorf("%s was started by another process; a test that disturbs it needs a cluster of its own", name)
	}
	return nil, fmt.Errorf("no program %s was started", name)
}

// Pause suspends a program: its connections stay open and nothing answers. Resume continues it.
func (c *Cluster) Pause(name string) error { return c.signal(name, syscall.SIGSTOP) }

// Resume continues a paused program.
func (c *Cluster) Resume(name string) error { return c.signal(name, syscall.SIGCONT) }

// Terminate sends SIGTERM to a program and waits until it has ended.
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

// Kill kills a program, as in a crash.
func (c *Cluster) Kill(name string) error {
	p, err := c.mine(name)
	if err != nil {
		return err
	}
	p.kill()
	return nil
}

// Restart starts a program again, on the same ports with the same data, and kills it first if it is running.
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

// Log returns the end of a program's log with its path, for messages of failed tests.
func (c *Cluster) Log(name string) string {
	return quoteLog(filepath.Join(c.LogDir(), name+".log"))
}

// Stop ends all programs in reverse order, and removes the directory if it is temporary; in a RunDir, logs and certificates are
// kept. It kills all programs: their data is not needed any more, and a graceful shutdown of the API server takes 9 seconds.
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
		_ = state{}.write(c.dir) // nothing is running; Down can remove the directory
	}
	for _, f := range slices.Backward(cleanup) {
		f()
	}
}
