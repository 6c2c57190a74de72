package record

import "testing"

func TestWhy(t *testing.T) {
	old, mixed := Owner{ID: "a", Print: "1"}, Owner{ID: "a"}
	same, edited := Object{State: Active, Print: "1", MayGive: true}, Object{State: Active, Print: "2", MayGive: true}
	dropped := Object{State: Active, Print: "2"}
	gives := Object{State: Active, Print: "2", MayGive: true, Gives: true}
	one := func(g Owner, now Object) Case { return Case{Past: []Owner{g}, Now: []Object{now}} }
	two := func(first, second Object) Case { return Case{Past: []Owner{old, old}, Now: []Object{first, second}} }
	unknown := func(c Case) Case { c.Unknown = true; return c }
	overruled := func(c Case) Case { c.Overruled = true; return c }
	for name, tc := range map[string]struct {
		in   Case
		want Cause
	}{
		"NobodyKnows":                 {Case{}, Unknown},
		"Same":                        {one(old, same), Facts},
		"Edited":                      {one(old, edited), Rules},
		"Deleted":                     {one(old, Object{State: Gone}), Rules},
		"Off":                         {one(old, Object{State: Off}), Rules},
		"Unsettled":                   {one(old, Object{}), Unknown},
		"SeveralGenerations":          {one(mixed, same), Rules},
		"OneOfTwoEdited":              {two(edited, same), Facts},
		"OneOfTwoDeleted":             {two(same, Object{State: Gone}), Facts},
		"BothEdited":                  {two(edited, edited), Rules},
		"OneOfTwoUnsettled":           {two(edited, Object{}), Unknown},
		"OverruledByAnother":          {overruled(one(old, same)), Rules},
		"OverruledAndNobodyKnows":     {overruled(Case{}), Rules},
		"UnknownAndSame":              {unknown(one(old, same)), Facts},
		"UnknownAndDeleted":           {unknown(one(old, Object{State: Gone})), Rules},
		"UnknownAndMayStillGive":      {unknown(one(old, edited)), Unknown},
		"UnknownAndCannotGiveAnyMore": {unknown(one(old, dropped)), Rules},
		"UnknownAndGivesAnotherValue": {unknown(one(old, gives)), Rules},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Why(tc.in); got != tc.want {
				t.Errorf("cause is %d, want %d", got, tc.want)
			}
		})
	}
}
