package dictionary

var otherFeatures = []Feature{
	{Name: "local.feature", Type: Attributes, Elements: []Element{
		{Name: "*", Kind: Text,
			Means: "the lines of the files, except lines marked `+no-feature`"},
	}},
	{Name: "local.label", Type: Attributes, Elements: []Element{
		{Name: "*", Kind: Text,
			Means: "the lines of the files, except lines marked `+no-label`"},
	}},

	{Name: "source.unread", Type: Flags, Open: true},

	{Name: "fake.attribute", Type: Attributes, Elements: []Element{
		{Name: "*", Kind: Text,
			Means: "as configured"},
	}},
	{Name: "fake.flag", Type: Flags, Elements: []Element{
		{Name: "*", Kind: Flag,
			Means: "as configured"},
	}},
	{Name: "fake.instance", Type: Instances, Elements: []Element{
		{Name: "*", Kind: Text,
			Means: "as configured"},
	}},

	{Name: "rule.matched", Type: Attributes, Open: true},
}
