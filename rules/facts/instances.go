package facts

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
)

// narrowValues is the maximum number of distinct values in a narrow column: the values of a byte except for zero, which means that
// the instance does not have the attribute.
const narrowValues = 255

// sparseShare is the fraction of instances (one in sparseShare) below which a column stores a list of the instances that have the
// attribute instead of one cell per instance. Otherwise n instances with one distinct attribute each would need n² cells.
const sparseShare = 4

// Instances is an immutable list of instances, each with its own attributes. It is safe for concurrent use. A nil *Instances is
// empty.
//
// It is stored by column, each with a dictionary of its values: eighty PCI devices have eight classes, so an expression on the
// class is evaluated eight times, not eighty times.
type Instances struct {
	id      uint64
	rows    int
	names   *names
	columns []*Column // by index of the name
}

// Column holds one attribute of all instances. Lists of an Interner share equal columns: network interfaces differ in their names, and
// have the same speeds and states.
type Column struct {
	text string   // the distinct values, in the order of first use, one after another
	ends []uint32 // where each of them ends
	rows []uint32 // indices of the instances with the attribute, ascending; nil if there is one cell per instance
	// Cells have the index of the value plus one, or 0 if the instance does not have the attribute. A column in which each cell has
	// its own value has none.
	narrow []uint8
	wide   []uint32 // the cells if there are more values
}

// NewInstances creates a list from maps. It does not keep the maps.
func NewInstances(list []map[string]string) *Instances {
	return instancesFromMaps(list, nil)
}

func instancesFromMaps(list []map[string]string, in *Interner) *Instances {
	var b instancesBuilder
	for _, m := range list {
		b.next()
		for _, name := range slices.Sorted(maps.Keys(m)) {
			b.add(name, m[name])
		}
	}
	return b.build(in)
}

// Len returns the number of instances.
func (s *Instances) Len() int {
	if s == nil {
		return 0
	}
	return s.rows
}

// Get returns an attribute of the i-th instance.
func (s *Instances) Get(i int, attribute string) (string, bool) {
	if s == nil || i < 0 || i >= s.rows {
		return "", false
	}
	p, ok := s.names.lookup(attribute)
	if !ok {
		return "", false
	}
	return s.columns[p].at(i)
}

// Instance returns a copy of the i-th instance.
func (s *Instances) Instance(i int) map[string]string {
	m := make(map[string]string, len(s.columns))
	for p := range s.columns {
		if v, ok := s.columns[p].at(i); ok {
			m[s.names.list[p]] = v
		}
	}
	return m
}

// Row refers to one instance without copying it. The zero Row is not an instance.
type Row struct {
	all   *Instances
	index int
}

// Row returns a reference to the i-th instance.
func (s *Instances) Row(i int) Row { return Row{s, i} }

// List returns the list that the row belongs to.
func (r Row) List() *Instances { return r.all }

// Index returns the position of the row in its list.
func (r Row) Index() int { return r.index }

// Exists reports whether the row is an instance.
func (r Row) Exists() bool { return r.all != nil }

// Get returns the value of an attribute.
func (r Row) Get(attribute string) (string, bool) { return r.all.Get(r.index, attribute) }

// GetKey is like Get, for a prepared name.
func (r Row) GetKey(k Key) (string, bool) {
	if r.all == nil {
		return "", false
	}
	p, ok := r.all.names.find(k)
	if !ok {
		return "", false
	}
	return r.all.columns[p].at(r.index)
}

// Names returns the names of the attributes, sorted.
func (r Row) Names() []string {
	var out []string
	for p, name := range r.all.Names() {
		if _, ok := r.all.columns[p].at(r.index); ok {
			out = append(out, name)
		}
	}
	return out
}

// Map returns a copy of the attributes, or nil if there is no instance.
func (r Row) Map() map[string]string {
	if r.all == nil {
		return nil
	}
	return r.all.Instance(r.index)
}

// Without returns a list in which instances do not have the attributes that drop selects, or the list itself if no instance has
// any.
func (s *Instances) Without(drop func(attribute string) bool) *Instances {
	if !slices.ContainsFunc(s.Names(), drop) {
		return s
	}
	list := s.Select(nil)
	for _, m := range list {
		maps.DeleteFunc(m, func(name, _ string) bool { return drop(name) })
	}
	return NewInstances(list)
}

// Select returns copies of the instances whose bit in keep is set, in order. A nil keep selects all instances. The cost is
// proportional to the number of cells. For instances with few common attributes, this is faster than reading the instances one by
// one.
func (s *Instances) Select(keep []uint64) []map[string]string {
	if s.Len() == 0 {
		return nil
	}
	all := make([]map[string]string, s.rows)
	count := 0
	for i := range all {
		if keep == nil || keep[i/64]&(1<<(i%64)) != 0 {
			all[i] = map[string]string{}
			count++
		}
	}
	for p := range s.columns {
		name, c := s.names.list[p], s.columns[p]
		for cell, row := range c.Cells() {
			if m := all[row]; m != nil {
				m[name] = c.Value(cell)
			}
		}
	}
	out := make([]map[string]string, 0, count)
	for _, m := range all {
		if m != nil {
			out = append(out, m)
		}
	}
	return out
}

// Names returns the sorted names of all attributes. The slice is shared: do not modify it.
func (s *Instances) Names() []string {
	if s == nil {
		return nil
	}
	return s.names.list
}

// Column returns the column of an attribute, or nil if no instance has it.
func (s *Instances) Column(k Key) *Column {
	if s == nil {
		return nil
	}
	p, ok := s.names.find(k)
	if !ok {
		return nil
	}
	return s.columns[p]
}

// ColumnAt returns the column of the i-th attribute name.
func (s *Instances) ColumnAt(i int) *Column { return s.columns[i] }

// ID returns a number that is unique to the list. Equal lists of one Interner have equal IDs; the ID of nil is 0.
func (s *Instances) ID() uint64 {
	if s == nil {
		return 0
	}
	return s.id
}

// Len returns the number of distinct values.
func (c *Column) Len() int { return len(c.ends) }

// Value returns the i-th distinct value in the order of first use.
func (c *Column) Value(i int) string {
	start := uint32(0)
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.text[start:c.ends[i]]
}

// Mark sets the bit in rows of each instance whose value has its bit set in values. Bit i of a set is bit i%64 of word i/64.
func (c *Column) Mark(values, rows []uint64) {
	switch {
	case c.rows != nil:
		for i, row := range c.rows {
			v := c.cell(i) - 1
			rows[row/64] |= (values[v/64] >> (v % 64) & 1) << (row % 64)
		}
	case c.narrow != nil:
		for row, cell := range c.narrow {
			if cell != 0 {
				v := cell - 1
				rows[row/64] |= (values[v/64] >> (v % 64) & 1) << (row % 64)
			}
		}
	case c.wide != nil:
		for row, cell := range c.wide {
			if cell != 0 {
				v := cell - 1
				rows[row/64] |= (values[v/64] >> (v % 64) & 1) << (row % 64)
			}
		}
	default:
		for i, word := range values {
			rows[i] |= word
		}
	}
}

// Cells iterates over pairs of the index of a value and an instance with this value.
func (c *Column) Cells() func(yield func(value, row int) bool) {
	return func(yield func(value, row int) bool) {
		n := max(len(c.narrow), len(c.wide))
		if n == 0 {
			n = len(c.ends)
		}
		for i := range n {
			v := c.cell(i)
			if v == 0 {
				continue
			}
			row := i
			if c.rows != nil {
				row = int(c.rows[i])
			}
			if !yield(int(v-1), row) {
				return
			}
		}
	}
}

func (c *Column) cell(i int) uint32 {
	switch {
	case c.narrow != nil:
		return uint32(c.narrow[i])
	case c.wide != nil:
		return c.wide[i]
	}
	return uint32(i + 1)
}

func (c *Column) at(row int) (string, bool) {
	i := row
	if c.rows != nil {
		var ok bool
		if i, ok = slices.BinarySearch(c.rows, uint32(row)); !ok {
			return "", false
		}
	}
	v := c.cell(i)
	if v == 0 {
		return "", false
	}
	return c.Value(int(v - 1)), true
}

// instancesBuilder collects instances row by row.
type instancesBuilder struct {
	rows    int
	names   []string
	columns []columnBuilder
	byName  map[string]int
	guess   int // the column after the last one: most rows have their attributes in the same order
}

type columnBuilder struct {
	rows   []uint32
	values []string
}

// next starts a new instance.
func (b *instancesBuilder) next() {
	b.rows++
	b.guess = 0
}

// add sets an attribute of the current instance. A second value replaces the first one.
func (b *instancesBuilder) add(name, value string) {
	p := b.column(name)
	b.guess = p + 1
	c, row := &b.columns[p], uint32(b.rows-1)
	if n := len(c.rows); n > 0 && c.rows[n-1] == row {
		c.values[n-1] = value
		return
	}
	c.rows = append(c.rows, row)
	c.values = append(c.values, value)
}

func (b *instancesBuilder) column(name string) int {
	if b.guess < len(b.names) && b.names[b.guess] == name {
		return b.guess
	}
	if p, ok := b.byName[name]; ok {
		return p
	}
	if b.byName == nil {
		b.byName = map[string]int{}
	}
	p := len(b.names)
	b.byName[name] = p
	b.names = append(b.names, name)
	b.columns = append(b.columns, columnBuilder{})
	return p
}

// build creates the list.
func (b *instancesBuilder) build(in *Interner) *Instances {
	order := make([]int, len(b.names))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return strings.Compare(b.names[x], b.names[y]) })
	s := &Instances{rows: b.rows, columns: make([]*Column, len(order))}
	sorted := make([]string, len(order))
	dictionary := map[string]uint32{}
	for i, p := range order {
		sorted[i] = b.names[p]
		s.columns[i] = in.column(b.columns[p].build(b.rows, dictionary))
		clear(dictionary)
	}
	s.names = in.internNames(sorted)
	return in.internInstances(s)
}

func (b *columnBuilder) build(rows int, dictionary map[string]uint32) Column {
	var c Column
	var values []string
	cells := make([]uint32, len(b.rows))
	for i, v := range b.values {
		id, ok := dictionary[v]
		if !ok {
			values = append(values, v)
			id = uint32(len(values))
			dictionary[v] = id
		}
		cells[i] = id
	}
	c.text, c.ends = concatenate(values)
	switch {
	case len(b.rows)*sparseShare < rows:
		c.rows = slices.Clip(b.rows)
	case len(cells) < rows:
		dense := make([]uint32, rows)
		for i, row := range b.rows {
			dense[row] = cells[i]
		}
		cells = dense
	}
	c.setCells(cells)
	return c
}

// concatenate copies values into one string, and returns where each of them ends. strings.Join would return a single value itself,
// which is a part of the text that is decoded.
func concatenate(values []string) (string, []uint32) {
	var text strings.Builder
	ends := make([]uint32, len(values))
	size := 0
	for i, v := range values {
		size += len(v)
		ends[i] = uint32(size)
	}
	text.Grow(size)
	for _, v := range values {
		text.WriteString(v)
	}
	return text.String(), ends
}

func (c *Column) setCells(cells []uint32) {
	switch {
	case len(cells) == len(c.ends): // each has its own value
	case len(c.ends) > narrowValues:
		c.wide = cells
	default:
		c.narrow = make([]uint8, len(cells))
		for i, v := range cells {
			c.narrow[i] = uint8(v)
		}
	}
}

func (c *Column) equal(o *Column) bool {
	return c.text == o.text && slices.Equal(c.ends, o.ends) && slices.Equal(c.rows, o.rows) &&
		slices.Equal(c.narrow, o.narrow) && slices.Equal(c.wide, o.wide)
}

// hash hashes the content.
func (c *Column) hash(h *maphash.Hash) {
	_, _ = h.WriteString(c.text)
	_, _ = h.Write(c.narrow)
	for _, list := range [][]uint32{c.ends, c.rows, c.wide} {
		hashInt(h, len(list))
		for _, v := range list {
			hashInt(h, int(v))
		}
	}
}

func (s *Instances) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	hashInt(&h, int(s.names.id))
	hashInt(&h, s.rows)
	for _, c := range s.columns {
		c.hash(&h)
	}
	return h.Sum64()
}

// equal reports whether two lists of one Interner are equal.
func (s *Instances) equal(o *Instances) bool {
	return s.names == o.names && s.rows == o.rows && slices.Equal(s.columns, o.columns)
}
