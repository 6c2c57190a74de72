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

	{Name: "crypto.cex", Type: Instances, Elements: []Element{
		{Name: "name", Kind: Text, Always: true, Values: []string{"card00"},
			Means: "name of the card"},
		{Name: "type", Kind: Text, Always: true, Values: []string{"CEX8C", "CEX8P"},
			Means: "generation and configuration"},
		{Name: "mode", Kind: Enum, Always: true, More: true, Values: []string{"accelerator", "cca", "ep11"},
			Means: "mode in which the card is configured"},
		{Name: "online", Kind: Integer, Values: []string{"1", "0"},
			Means: "1 if the kernel uses the card"},
		{Name: "config", Kind: Integer, Values: []string{"1", "0"},
			Means: "1 if the card is configured on"},
		{Name: "hwtype", Kind: Integer, Values: []string{"14", "13"},
			Means: "number of the hardware type"},
		{Name: "depth", Kind: Integer, Values: []string{"8"},
			Means: "depth of the queues"},
		{Name: "ap_functions", Kind: Text, Values: []string{"0x92000000"},
			Means: "functions of the card, a hexadecimal number"},
		{Name: "queue_count", Kind: Integer, Values: []string{"2", "1"},
			Means: "number of queues"},
		{Name: "queues", Kind: Text, Values: []string{"00.0005,00.0016"},
			Means: "names of the queues: card and domain"},
	}},
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
