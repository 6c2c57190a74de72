package convert

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/yamltree"
)

// Custom converts the custom rules of NFD's worker, in any notation, to NodeFeatureRules. It accepts a list of rules, a worker's
// configuration file, a ConfigMap that contains one, a NodeFeatureDiscovery object of OpenShift's NFD operator, and
// NodeFeatureRules in short form. The notes list other settings in these files, which belong to the configuration of the worker or
// the controller.
func Custom(id string, source []byte) ([]*yaml.Node, []Note, error) {
	roots, err := compose.ParseTrees(id, source)
	if err != nil {
		return nil, nil, err
	}
	c := custom{id: id}
	for _, root := range roots {
		top := root.Content[0]
		switch {
		case yamltree.IsNull(top):
		case top.Kind == yaml.SequenceNode:
			err = c.rules(top, "")
		case top.Kind == yaml.MappingNode:
			err = c.document(top)
		default:
			err = fmt.Errorf("%s:%d: expected rules or an object with rules", id, top.Line)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return c.objects, c.list, nil
}

// custom converts one source.
type custom struct {
	notes
	id      string
	objects []*yaml.Node
}

func (c *custom) document(top *yaml.Node) error {
	name := value(child(top, "metadata"), "name")
	switch kind := value(top, "kind"); kind {
	case "":
		c.where = "worker configuration"
		return c.worker(top, "")
	case "NodeFeatureRule", "NodeFeatureRuleTemplate":
		c.where = kind + " " + name
		c.group(top)
		return c.object(top)
	case "NodeFeatureDiscovery":
		c.where = "NodeFeatureDiscovery " + name
		return c.operator(child(top, "spec"), name)
	case "ConfigMap":
		data := child(top, "data")
		for _, key := range []string{"nfd-worker.conf", "custom-conf", "worker.conf"} {
			if conf := child(data, key); conf != nil {
				c.where = "ConfigMap " + name + " key " + key
				return c.config(conf, name)
			}
		}
		if conf := child(data, topologyConf); conf != nil {
			c.where = "ConfigMap " + name + " key " + topologyConf
			return c.topology(conf)
		}
		return fmt.Errorf("%s:%d: ConfigMap %s has no nfd-worker.conf", c.id, top.Line, name)
	default:
		return fmt.Errorf("%s:%d: expected a NodeFeatureDiscovery, a ConfigMap or a worker configuration, found kind %s", c.id, top.Line, kind)
	}
}

// openShiftGroup is the API group of NFD's kinds in OpenShift's NFD operator.
const openShiftGroup = "nfd.openshift.io/"

// group replaces the API group of OpenShift's operator.
func (c *custom) group(top *yaml.Node) {
	if at := yamltree.Index(top, "apiVersion"); at >= 0 && strings.HasPrefix(top.Content[at+1].Value, openShiftGroup) {
		c.add(top.Content[at+1], "renamed %s to %s", top.Content[at+1].Value, nfdVersion)
		top.Content[at+1].Value = nfdVersion
	}
}

// object converts an object that is a NodeFeatureRule already.
func (c *custom) object(top *yaml.Node) error {
	if meta := child(top, "metadata"); child(meta, "namespace") != nil {
		c.add(child(meta, "namespace"), "removed the namespace: a %s is in no namespace", value(top, "kind"))
		remove(meta, "namespace")
	}
	notes, err := expandRules(child(child(top, "spec"), "rules"))
	if err != nil {
		return fmt.Errorf("%s: %w", c.id, err)
	}
	c.list, c.objects = append(c.list, notes...), append(c.objects, top)
	return nil
}

// expandRules converts rules to the API's notation.
func expandRules(list *yaml.Node) ([]Note, error) {
	notes, err := MatchOn(list)
	return append(notes, LongForm(list)...), err
}

// operatorFields maps the settings of the operator's object to their equivalents.
var operatorFields = map[string]string{
	"instance":       "instances are separate installations of the chart",
	"extraLabelNs":   "set extraLabelNs in the controller's configuration",
	"labelWhiteList": "set labelWhiteList in the controller's configuration",
	"enableTaints":   "set enableTaints in the controller's configuration",
	"prunerOnDelete": "the chart cleans up when it is uninstalled",
}

// topologyUpdater is the key of the operator's object that enables the topology updater, and topologyConf that of its configuration in a
// ConfigMap.
const (
	topologyUpdater = "topologyUpdater"
	topologyConf    = "nfd-topology-updater.conf"
)

// topology names the value of the chart that a configuration of the topology updater becomes.
func (c *custom) topology(conf *yaml.Node) error {
	roots, err := compose.ParseTrees(fmt.Sprintf("%s:%d", c.id, conf.Line), []byte(conf.Value))
	if err != nil {
		return err
	}
	for _, root := range roots {
		top := root.Content[0]
		place(top, conf)
		for i := 0; top.Kind == yaml.MappingNode && i+1 < len(top.Content); i += 2 {
			key, v := top.Content[i], top.Content[i+1]
			if key.Value != "excludeList" {
				c.lost(key, "%s: no equivalent", key.Value)
				continue
			}
			c.lost(key, "excludeList: set topology.excludeList=%s in the values of the chart", yamltree.JSON(v))
		}
	}
	return nil
}

// operandFields maps the settings of the operand to the values of the chart.
var operandFields = map[string]string{
	"workerTolerations":       "worker.tolerations",
	"workerNodeSelector":      "worker.nodeSelector",
	"workerAffinity":          "worker.affinity",
	"workerPriorityClassName": "worker.priorityClassName",
	"workerEnvs":              "worker.extraEnvs",
	"masterTolerations":       "controller.tolerations",
	"masterNodeSelector":      "controller.nodeSelector",
	"masterEnvs":              "controller.extraEnvs",
	"imagePullPolicy":         "image.pullPolicy",
	"imagePullSecrets":        "imagePullSecrets",
	"image":                   "",
	"namespace":               "",
	"servicePort":             "",
}

// operand names the settings of the pods, each with the value of the chart that it becomes.
func (c *custom) operand(operand *yaml.Node) {
	for i := 0; operand.Kind == yaml.MappingNode && i+1 < len(operand.Content); i += 2 {
		key, v := operand.Content[i], operand.Content[i+1]
		switch to, known := operandFields[key.Value]; {
		case to != "":
			c.lost(key, "spec.operand.%s: set %s=%s in the values of the chart", key.Value, to, yamltree.JSON(v))
		case known:
			c.lost(key, "spec.operand.%s: Assay's images, namespace and ports are chosen in the values of its chart", key.Value)
		default:
			c.lost(key, "spec.operand.%s: no equivalent", key.Value)
		}
	}
}

func (c *custom) operator(spec *yaml.Node, name string) error {
	if spec == nil {
		return nil
	}
	for i := 0; i < len(spec.Content); i += 2 {
		key, v := spec.Content[i], spec.Content[i+1]
		switch key.Value {
		case "operand":
			c.operand(v)
		case "resourceLabels":
			c.lost(key, "spec.resourceLabels: %s: labels no longer become extended resources by themselves; write extendedResources in a rule for each", yamltree.JSON(v))
		case topologyUpdater:
			c.lost(key, "spec.topologyUpdater: set topology.enabled=%s in the values of the chart", yamltree.JSON(v))
		case "workerConfig", "customConfig":
			conf := child(v, "configData")
			if conf == nil {
				continue
			}
			if err := c.config(conf, name); err != nil {
				return err
			}
		default:
			where, known := operatorFields[key.Value]
			if !known {
				where = "no equivalent"
			}
			c.lost(key, "spec.%s: %s", key.Value, where)
		}
	}
	return nil
}

// config converts configuration in a string inside other YAML.
func (c *custom) config(conf *yaml.Node, name string) error {
	roots, err := compose.ParseTrees(fmt.Sprintf("%s:%d", c.id, conf.Line), []byte(conf.Value))
	if err != nil {
		return err
	}
	for _, root := range roots {
		top := root.Content[0]
		place(top, conf)
		switch top.Kind {
		case yaml.SequenceNode:
			if err := c.rules(top, name); err != nil {
				return err
			}
		case yaml.MappingNode:
			if err := c.worker(top, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// place changes the lines of a tree that was parsed from the text of a string to those of the file.
func place(n, text *yaml.Node) {
	if text.Style&yaml.LiteralStyle != 0 {
		n.Line += text.Line
	} else {
		n.Line = text.Line
	}
	for _, child := range n.Content {
		place(child, text)
	}
}

// worker converts the custom rules of a worker's configuration.
func (c *custom) worker(conf *yaml.Node, name string) error {
	sources := child(conf, "sources")
	for _, holder := range []*yaml.Node{sources, conf} { // some files omit "sources:"
		list := child(holder, "custom")
		if list == nil {
			continue
		}
		if list.Kind != yaml.SequenceNode {
			return fmt.Errorf("%s:%d: custom: expected a list of rules", c.id, list.Line)
		}
		if err := c.rules(list, name); err != nil {
			return err
		}
		remove(holder, "custom")
	}
	for i := 0; i < len(conf.Content); i += 2 {
		key := conf.Content[i]
		if key.Value == "sources" {
			for j := 0; sources != nil && j < len(sources.Content); j += 2 {
				c.add(sources.Content[j], "sources.%s stays in the configuration of Assay's worker as it is", sources.Content[j].Value)
			}
			continue
		}
		c.add(key, "%s stays in the configuration of Assay's worker as it is", key.Value)
	}
	return nil
}

// rules creates one object from a list of custom rules.
func (c *custom) rules(list *yaml.Node, name string) error {
	notes, err := expandRules(list)
	if err != nil {
		return fmt.Errorf("%s: %w", c.id, err)
	}
	c.list = append(c.list, notes...)
	for _, rule := range list.Content {
		for i := 0; rule.Kind == yaml.MappingNode && i < len(rule.Content); i += 2 {
			if key := rule.Content[i]; !slices.Contains(customFields, key.Value) && !slices.Contains(ignoredFields, key.Value) {
				return fmt.Errorf("%s:%d: rule %s: unknown field %s", c.id, key.Line, value(rule, "name"), key.Value)
			}
		}
	}
	if len(list.Content) == 0 {
		return nil
	}
	list.Style &^= yaml.FlowStyle
	prefix := "custom"
	if len(c.objects) > 0 {
		prefix = fmt.Sprintf("custom-%d", len(c.objects)+1)
	}
	c.objects = append(c.objects, mapping(
		text("apiVersion"), text(nfdVersion),
		text("kind"), text("NodeFeatureRule"),
		text("metadata"), mapping(text("name"), text(objectName(prefix, name))),
		text("spec"), mapping(text("rules"), list),
	))
	return nil
}
