package webhook

import "bytes"

// The functions of this file find fields in JSON without decoding it: to decode the objects of a request more than once would take
// longer than their review. For invalid JSON they return an arbitrary range of the input, which fails to decode.

// openReview returns the objects of an AdmissionReview, nil for those that are absent or null, and the review without them. The
// objects share the memory of the body.
func openReview(body []byte) (rest, object, old []byte) {
	from := 0
	cut := func(i int) []byte {
		end := skip(body, i)
		rest = append(append(rest, body[from:i]...), "null"...)
		from = end
		if string(body[i:end]) == "null" {
			return nil
		}
		return body[i:end]
	}
	walk(body, 0, func(key string, i int) int {
		if key != "request" {
			return skip(body, i)
		}
		return walk(body, i, func(key string, i int) int {
			switch key {
			case "object":
				object = cut(i)
			case "oldObject":
				old = cut(i)
			default:
				return skip(body, i)
			}
			return from
		})
	})
	return append(rest, body[from:]...), object, old
}

// maxParts is the maximum number of parts of an object that is decoded. The API server checks the number of rules after mutating
// admission, and an empty rule has two characters but takes 400 bytes of memory, and a container 900. An object with expressions of
// usual length exceeds etcd's limit of 1.5 MiB with fewer parts.
const maxParts = 1 << 16

// parts returns an upper bound of the number of structs that an object decodes to; 0 if there are too few to count.
func parts(raw []byte) int {
	if len(raw) <= 2*maxParts {
		return 0
	}
	return bytes.Count(raw, []byte("{")) + bytes.Count(raw, []byte("null"))
}

// specFlag reports whether a field of an object's spec is true.
func specFlag(raw []byte, field string) (set bool) {
	walk(raw, 0, func(key string, i int) int {
		if key != "spec" {
			return skip(raw, i)
		}
		return walk(raw, i, func(key string, i int) int {
			end := skip(raw, i)
			if key == field {
				set = string(raw[i:end]) == "true"
			}
			return end
		})
	})
	return set
}

// walk calls visit for each member of the object at i, with the index of the member's value, and returns the index behind the object. visit
// returns the index behind the value. A value that is not an object has no members.
func walk(raw []byte, i int, visit func(key string, i int) int) int {
	if i = blank(raw, i); i >= len(raw) || raw[i] != '{' {
		return skip(raw, i)
	}
	for i < len(raw) && raw[i] != '}' {
		if i = blank(raw, i+1); i >= len(raw) || raw[i] != '"' {
			break
		}
		end := quoted(raw, i)
		colon := blank(raw, end)
		if colon >= len(raw) || raw[colon] != ':' {
			return len(raw)
		}
		i = blank(raw, visit(string(raw[i+1:max(i+1, end-1)]), blank(raw, colon+1)))
	}
	return min(i+1, len(raw))
}

// structural are the characters that may end a value, or begin a part of it.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true, ',': true, ' ': true, '\t': true, '\r': true, '\n': true}

// skip returns the index behind the value at i.
func skip(raw []byte, i int) int {
	for depth := 0; i < len(raw); i++ {
		if !structural[raw[i]] {
			continue
		}
		switch raw[i] {
		case '"':
			if i = quoted(raw, i) - 1; depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(raw)
}

// quoted returns the index behind the string that begins at i.
func quoted(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(raw)
}

// blank returns the index of the first byte from i that is not white space.
func blank(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\r' || raw[i] == '\n') {
		i++
	}
	return i
}
