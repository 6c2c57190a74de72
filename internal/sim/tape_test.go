package sim

import "math/rand/v2"

// tape provides all random choices of a run. It records every choice, so that a run can be repeated with modified choices; 0 is
// always the most ordinary choice.
type tape struct {
	random *rand.Rand // nil: choices beyond replay are 0
	replay []uint16
	record []uint16
	// extends is set if an extender runs: in every fourth schedule, since it takes a quarter of the time of one.
	extends bool
	// devices is set if DRA drivers publish devices, and a rule reads them: in every fourth schedule.
	devices bool
	// declares is set if a NodeBaseline says how nodes must be: in every fourth schedule.
	declares bool
	// redefines is set if others replace and delete the definition of rules: in every fourth schedule.
	redefines bool
	// yields lets the programs go on before the simulator waits for them, as an operating system can that interrupts it.
	yields bool
}

func newTape(seed uint64) *tape {
	return &tape{random: rand.New(rand.NewPCG(seed, 0)), extends: seed%4 == 0, devices: seed%4 == 2, declares: seed%4 == 1, redefines: seed%4 == 3}
}

// again returns a tape that repeats choices of this one.
func (t *tape) again(choices []uint16) *tape {
	return &tape{replay: choices, extends: t.extends, devices: t.devices, declares: t.declares, redefines: t.redefines}
}

// n chooses a number below n.
func (t *tape) n(n int) int {
	var v uint16
	switch i := len(t.record); {
	case t.random != nil:
		v = uint16(t.random.Uint32())
	case i < len(t.replay):
		v = t.replay[i]
	}
	t.record = append(t.record, v)
	return int(v) % n
}

// one chooses one of a list.
func one[T any](t *tape, list ...T) T { return list[t.n(len(list))] }

// weighted is a possible step with its relative weight.
type weighted struct {
	weight int
	do     func()
}

// pick executes one step of a list.
func (t *tape) pick(list []weighted) {
	sum := 0
	for _, w := range list {
		sum += w.weight
	}
	at := t.n(sum)
	for _, w := range list {
		if at -= w.weight; at < 0 {
			w.do()
			return
		}
	}
}
