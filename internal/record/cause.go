package record

// State is what is known of an object at present.
type State int

// The states of objects.
const (
	// Unsettled objects exist, and it is unknown what their rules are: they cannot be resolved, for example.
	Unsettled State = iota
	// Gone objects have been deleted, which the API server has confirmed.
	Gone
	// Off objects exist, and none of their rules is used because of what is written in them.
	Off
	// Active objects have rules that are evaluated.
	Active
	// Waiting objects are unknown because of the definition of their kind: it is absent, or may lack fields that they have.
	Waiting
	// Vanished objects were deleted with the definition of their kind, which is there again: no user has deleted them.
	Vanished
)

// Object is an object of rules at present.
type Object struct {
	State State
	// Print is the fingerprint of one that is evaluated.
	Print string
	// Gives is set if it gives the key to the node now, MayGive if it can give it to some node.
	Gives, MayGive bool
}

// Case is everything that the cause of a removal, or of a changed value, depends on.
type Case struct {
	// Past are the objects that may have given the key; empty: unknown.
	Past []Owner
	// Now are the same objects at present.
	Now []Object
	// Overruled is set if an object that is new or has changed sets or deletes the key on the node.
	Overruled bool
	// Unknown is set if the facts of the node's worker are missing.
	Unknown bool
}

// Cause says why a key is removed or its value changes.
type Cause int

// The causes.
const (
	// Unknown means that it is unknown which object gave the key.
	Unknown Cause = iota
	// Facts means that the object that gave the key is the same, and present facts say otherwise.
	Facts
	// Rules means that the object that gave the key has changed, or that another one sets or deletes it now.
	Rules
)

// String returns the cause as it is logged.
func (c Cause) String() string {
	return [...]string{"unknown rule", "changed facts", "changed rules"}[c]
}

// Why returns the cause. Where several objects may have given the key, all of them must have changed for the cause to be the rules.
func Why(c Case) Cause {
	if c.Overruled {
		return Rules
	}
	if len(c.Past) == 0 {
		return Unknown
	}
	cause := Rules
	for i, past := range c.Past {
		switch now := c.Now[i]; {
		case now.State == Unsettled || now.State == Waiting || now.State == Vanished:
			return Unknown
		case now.State != Active:
		case now.Print == past.Print:
			cause = Facts
		case c.Unknown && now.MayGive && !now.Gives:
			return Unknown // the facts that it needs may be among those that are missing
		}
	}
	return cause
}
