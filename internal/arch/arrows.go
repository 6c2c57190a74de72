package arch

// clusterClients are packages that talk to an API server.
var clusterClients = []string{"k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/..."}

// Arrows are the rules for imports. ARCHITECTURE.md describes them.
var Arrows = []Arrow{
	{
		From:      []string{"./rules/...", "./api/...", "./settings"},
		Forbidden: clusterClients, Deep: true,
		Reason: "an Outcome depends on facts and programs only; what has to be looked up is gathered first and handed in. " +
			"The command line, the worker and every test would carry the client too",
	},
	{
		From:      []string{"./controller/node/decide", "./internal/desired", "./internal/record"},
		Forbidden: append([]string{"k8s.io/utils/clock"}, clusterClients...),
		Reason: "what to write to a Node follows from what was gathered; evidence that is missing is asked for in Decision.Needs. " +
			"Tables and the simulator's passes test it without a cluster",
	},
	{
		From:      []string{"./controller/node/decide", "./internal/desired", "./internal/record"},
		Forbidden: clusterClients, Deep: true,
		Reason: "a decision uses no client, not even through a package that it imports",
	},
	{
		From: []string{"./discovery/..."}, Except: []string{"./discovery/publish"},
		Forbidden: clusterClients, Deep: true,
		Reason: "discovery turns a host into facts, on a laptop and from an archive as well; discovery/publish alone knows the API server",
	},
	{
		From:      []string{"./rules/..."},
		Forbidden: []string{Module + "/..."}, Allowed: []string{"./rules/...", "./api/...", "./charts"},
		Reason: "rules are pure: they stand on the API types, their definitions and on one another, and on nothing that observes or serves",
	},
	{
		From: []string{"./rules/..."}, Except: []string{"./rules/suite/..."},
		Forbidden: []string{"net", "net/http", "os", "os/exec", "math/rand", "math/rand/v2", "time"},
		Reason: "the same facts and rules give the same outcome, on any machine at any time; " +
			"only rules/suite reads files, the users' own tests",
	},
	{
		From:      []string{"./discovery/..."},
		Forbidden: []string{Module + "/..."}, Allowed: []string{"./discovery/...", "./api/..."},
		Reason: "sources know nothing of rules: internal/worker wires rules into discovery/custom through an interface",
	},
	{
		From:      []string{"./api/...", "./charts"},
		Forbidden: []string{Module + "/..."}, Allowed: []string{"./api/..."},
		Reason: "the API is data and names; all packages import it, so it imports none",
	},
	{
		From: []string{Module + "/..."}, Except: []string{"./rules", "./rules/lang/...", "./cmd/assay/eval"},
		Forbidden: []string{"./rules/lang/..."},
		Reason:    "rules/lang is the inside of the engine; its API is package rules (rules/language.go lists operators, actions and functions)",
	},
	{
		From: []string{"./cmd/assay/..."}, Except: []string{"./cmd/assay"},
		Forbidden: []string{"./cmd/assay/..."}, Allowed: []string{"./cmd/assay/internal/..."},
		Reason: "a verb of the command line is read and changed without the others: what two verbs need belongs into cmd/assay/internal",
	},
	{
		From:      []string{"./cmd/assay/eval"},
		Forbidden: []string{"./rules/lang/..."}, Allowed: []string{"./rules/lang/expr"},
		Reason: "the command line evaluates a single expression, `assay expr`, and nothing else of the language by itself",
	},
	{
		From:      []string{"./cmd/assay/..."},
		Forbidden: []string{"./rules/gather", "./internal/fleet/inputs"},
		Reason: "which NodeFeatures count is decided in one place: the command line gets its inputs from internal/fleet/offline, " +
			"so that it evaluates what the controller evaluates",
	},
	{
		From:      []string{"./cmd/assay", "./cmd/assay/..."},
		Forbidden: []string{"sigs.k8s.io/controller-runtime/...", "k8s.io/client-go/kubernetes/..."},
		Deep:      true,
		Reason: "packages that are linked are initialized by each verb: without these, `assay version` takes 13 ms of CPU instead of 22, " +
			"and the program has 59 MB instead of 75",
	},
	sibling("./controller/..."),
	sibling("./webhook/..."),
	sibling("./extender/..."),
	sibling("./certs/..."),
	sibling("./discovery/publish"),
	{
		From: []string{"./cmd/assay-worker/...", "./internal/worker/..."},
		Forbidden: []string{
			"sigs.k8s.io/controller-runtime/...", "github.com/google/cel-go/...", "k8s.io/apiserver/...", "k8s.io/client-go/kubernetes/...",
		},
		Deep: true,
		Reason: "the worker runs on every node and has 15 MB. It starts at 10 MB with a dynamic client and at 23 MB with " +
			"controller-runtime: 60 GB over 5,000 nodes",
	},
	{
		From: []string{"./internal/...", "./settings"}, Except: []string{"./internal/sim/...", "./internal/testkit"},
		Forbidden: []string{"./controller/...", "./webhook/...", "./extender/..."},
		Reason: "internal/ is what controller, webhook and extender share; what belongs to a program is in cmd/assay-manager/internal. " +
			"The simulator runs the programs",
	},
	{
		From: []string{Module + "/..."}, Except: []string{"./cmd/assay", "./cmd/assay/image", "./internal/imagecompat/..."},
		Forbidden: []string{"./internal/imagecompat/...", "oras.land/oras-go/..."}, Deep: true,
		Reason: "registries are accessed by the command line alone, with the user's own credentials: nothing in the cluster reads what an " +
			"image names",
	},
	{
		From: []string{Module + "/..."}, Except: []string{"./cmd/..."},
		Forbidden: []string{"./cmd/..."},
		Reason:    "a program reads flags, logs and exits; what others need of it belongs into a package",
	},
	{
		From: []string{Module + "/..."}, Except: []string{"./test/...", "./internal/testkit/...", "./internal/sim/..."},
		Forbidden: []string{"./test/...", "./internal/testkit/...", "./internal/arch", "./internal/sim/..."}, Deep: true,
		Reason: "what is shipped holds no tools for tests",
	},
}

// siblings are packages that must not import each other.
var siblings = []string{"./controller/...", "./webhook/...", "./extender/...", "./certs/...", "./discovery/publish"}

// sibling returns the arrow that forbids a sibling to import the others.
func sibling(self string) Arrow {
	return Arrow{
		From: []string{self}, Forbidden: siblings, Allowed: []string{self}, Deep: true,
		Reason: "controller, webhook, extender, certs and discovery/publish are siblings; what two of them need belongs under rules or internal",
	}
}
