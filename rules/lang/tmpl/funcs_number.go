package tmpl

import (
	"math"
	"strconv"
	"strings"
)

var numberFunctions = []function{
	{"int", 1, 1, -1, func(c *call) value { return integer(toInt(c.args[0])) }},
	{"int64", 1, 1, -1, func(c *call) value { return integer(toInt(c.args[0])) }},
	{"float64", 1, 1, -1, func(c *call) value { return number(toFloat(c.args[0])) }},
	{"atoi", 1, 1, -1, func(c *call) value {
		n, _ := strconv.Atoi(c.str(0))
		return integer(int64(n))
	}},
	{"add", 0, -1, -1, func(c *call) value { return c.fold(0, func(a, b int64) int64 { return a + b }) }},
	{"add1", 1, 1, -1, func(c *call) value { return integer(toInt(c.args[0]) + 1) }},
	{"mul", 1, -1, -1, func(c *call) value { return c.fold(1, func(a, b int64) int64 { return a * b }) }},
	{"sub", 2, 2, -1, func(c *call) value { return integer(toInt(c.args[0]) - toInt(c.args[1])) }},
	{"div", 2, 2, -1, func(c *call) value { return integer(toInt(c.args[0]) / c.divisor()) }},
	{"mod", 2, 2, -1, func(c *call) value { return integer(toInt(c.args[0]) % c.divisor()) }},
	{"max", 1, -1, -1, func(c *call) value { return c.fold(math.MinInt64, func(a, b int64) int64 { return max(a, b) }) }},
	{"min", 1, -1, -1, func(c *call) value { return c.fold(math.MaxInt64, func(a, b int64) int64 { return min(a, b) }) }},
	{"addf", 0, -1, -1, func(c *call) value { return c.foldFloat(func(a, b float64) float64 { return a + b }) }},
	{"subf", 1, -1, -1, func(c *call) value { return c.foldFloat(func(a, b float64) float64 { return a - b }) }},
	{"mulf", 1, -1, -1, func(c *call) value { return c.foldFloat(func(a, b float64) float64 { return a * b }) }},
	{"divf", 1, -1, -1, func(c *call) value { return c.foldFloat(func(a, b float64) float64 { return a / b }) }},
	{"maxf", 1, -1, -1, func(c *call) value { return c.foldFloat(math.Max) }},
	{"minf", 1, -1, -1, func(c *call) value { return c.foldFloat(math.Min) }},
	{"ceil", 1, 1, -1, func(c *call) value { return number(math.Ceil(toFloat(c.args[0]))) }},
	{"floor", 1, 1, -1, func(c *call) value { return number(math.Floor(toFloat(c.args[0]))) }},
	{"round", 2, 2, -1, func(c *call) value {
		scale := math.Pow(10, float64(c.int(1)))
		return number(math.Round(toFloat(c.args[0])*scale) / scale)
	}},
	{"until", 1, 1, -1, func(c *call) value {
		n := c.int(0)
		if n < 0 {
			return c.sequence(0, int64(n), -1, false)
		}
		return c.sequence(0, int64(n), 1, false)
	}},
	{"seq", 0, 3, -1, seq},
}

// toInt converts as Sprig does: anything that is not a number is 0.
func toInt(v value) int64 {
	switch v.kind {
	case kindInt, kindBool:
		return v.int()
	case kindFloat:
		return int64(v.float())
	case kindString:
		s := strings.TrimLeft(v.str, "0")
		if i := strings.IndexByte(s, '.'); i >= 0 && strings.Trim(s[i+1:], "0") == "" {
			s = s[:i]
		}
		if strings.HasPrefix(s, "x") || strings.HasPrefix(s, "X") {
			s = "0" + s
		}
		n, err := strconv.ParseInt(s, 0, 64)
		if err != nil {
			return 0 // also of a number beyond 64 bits, for which ParseInt returns the nearest one
		}
		return n
	}
	return 0
}

func toFloat(v value) float64 {
	switch v.kind {
	case kindInt, kindBool:
		return float64(v.int())
	case kindFloat:
		return v.float()
	case kindString:
		f, err := strconv.ParseFloat(v.str, 64)
		if err != nil {
			return 0
		}
		return f
	}
	return 0
}

// fold combines all arguments, starting with start.
func (c *call) fold(start int64, op func(a, b int64) int64) value {
	for _, v := range c.args {
		start = op(start, toInt(v))
	}
	return integer(start)
}

func (c *call) foldFloat(op func(a, b float64) float64) value {
	out := 0.0
	for i, v := range c.args {
		if i == 0 {
			out = toFloat(v)
			continue
		}
		out = op(out, toFloat(v))
	}
	return number(out)
}

func (c *call) divisor() int64 {
	n := toInt(c.args[1])
	if n == 0 {
		c.fail("division by zero")
	}
	return n
}

// sequence returns the numbers from first towards end, including end if inclusive is set.
func (c *call) sequence(first, end, step int64, inclusive bool) value {
	if step == 0 || first > end != (step < 0) && first != end {
		return listOf(nil)
	}
	distance := uint64(end) - uint64(first)
	size := uint64(step)
	if step < 0 {
		distance, size = -distance, -size
	}
	n := distance / size
	if inclusive || distance%size != 0 {
		n++
	}
	if n > MaxSteps {
		c.fail("a list of %d numbers is too long", n)
	}
	items := c.make(int(n))
	for i := range int64(n) {
		items = append(items, integer(first+i*step))
	}
	return listOf(items)
}

// seq returns the numbers that the command seq prints. Its arguments are the last number; the first and the last; or the first, the
// step and the last.
func seq(c *call) value {
	first, last, step := int64(1), int64(0), int64(1)
	switch len(c.args) {
	case 0:
		return text("")
	case 1:
		if last = int64(c.int(0)); last < first {
			step = -1
		}
	case 2:
		if first, last = int64(c.int(0)), int64(c.int(1)); last < first {
			step = -1
		}
	case 3:
		first, step, last = int64(c.int(0)), int64(c.int(1)), int64(c.int(2))
		if step == 0 || last < first && step > 0 {
			return text("")
		}
	}
	return c.joined(" ", c.shown(c.sequence(first, last, step, true)))
}
