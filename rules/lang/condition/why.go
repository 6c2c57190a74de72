package condition

import (
	"fmt"
	"strings"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// maxShown is the maximum number of bytes of a value in a description.
const maxShown = 100

// Why describes why a condition that does not hold on a node does not: with the values of its arguments, in a loop with multiple: all those for
// the first item for which it does not hold. A condition that reads a masked value fails with an error instead.
func (c *Condition) Why(env expr.Env) string {
	out := c.String() + " does not hold"
	if c.loop == nil {
		return out + ": " + c.values(env)
	}
	items, err := c.items(env)
	switch {
	case err != nil:
		return out + ": " + err.Error()
	case items == nil || items.Len() == 0:
		return out + ": its loop has no items"
	case c.multiple != allTurns && items.Len() > 1:
		return fmt.Sprintf("%s for any of %d items", out, items.Len())
	}
	turn := &args.Turn{Env: env}
	for i := range items.Len() {
		turn.Value = items.At(i)
		if ok, err := c.once(turn); err != nil || !ok {
			return out + ": " + c.values(turn)
		}
	}
	return out
}

// values lists the arguments with their values.
func (c *Condition) values(env expr.Env) string {
	var out []string
	for _, arg := range c.turn(env).Args {
		out = append(out, arg.Name+" "+clip.Text(string(shown(arg.Value)), maxShown))
	}
	return strings.Join(out, ", ")
}

func shown(v expr.Value) []byte {
	text, err := v.MarshalJSON()
	if err != nil {
		return []byte(err.Error())
	}
	return text
}
