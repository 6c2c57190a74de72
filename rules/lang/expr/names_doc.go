package expr

// NameDoc describes a name in the reference.
type NameDoc struct {
	Name, Says string
}

// NameDocs describes every name that an expression may contain, except for variables.
func NameDocs() []NameDoc {
	return []NameDoc{
		{"node", "the node's name; also `nodename` and `node.name`"},
		{`node.labels["KEY"]`, "a label of the Node; not in phase early"},
		{`node.annotations["KEY"]`, "an annotation of the Node; not in phase early"},
		{"host", "the node's name up to the first dot"},
		{"n1 … n999", "the first number in the node's name, the second, and so on, without leading zeros"},
		{"n0", "the last number in the node's name"},
		{"rack, location.u", "a variable of this object; the longest declared name that a dotted name begins with"},
		{`vars.NAME, vars["my-var"]`, "the same, for names that are reserved or hold other characters"},
		{"@domain.feature.element", "the value of an attribute; true for a flag that exists"},
		{"@domain.feature", "a whole feature: a map of attributes, or the list of instances"},
		{`@"domain.feature.x-y/z"`, "either of them, for names that hold other characters"},
		{"@rule.matched.NAME", "a label or variable of an earlier rule, of any object"},
		{"matched.domain.feature", "the elements that the matchers of this rule matched"},
		{"item", "the item of a loop; `item.name` and `item[\"key\"]` for parts of it"},
	}
}
