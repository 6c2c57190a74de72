package podres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Wire types of Protocol Buffers; see https://protobuf.dev/programming-guides/encoding.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// maxField is the largest number of a field.
const maxField = 1<<29 - 1

var (
	errTruncated = errors.New("truncated message")
	errWire      = errors.New("a field has the wrong type")
)

// field is one field of a message.
type field struct {
	number uint64
	wire   uint64
	value  uint64 // of a varint
	data   []byte // of wireBytes
}

// each calls f for each field of a message.
func each(message []byte, f func(field) error) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return errTruncated
		}
		message = message[n:]
		v := field{number: tag >> 3, wire: tag & 7}
		var size uint64
		switch v.wire {
		case wireVarint:
			if v.value, n = binary.Uvarint(message); n <= 0 {
				return errTruncated
			}
			size = uint64(n)
		case wireFixed64:
			size = 8
		case wireFixed32:
			size = 4
		case wireBytes:
			length, n := binary.Uvarint(message)
			if n <= 0 {
				return errTruncated
			}
			message = message[n:]
			size = length
		default:
			return fmt.Errorf("field %d has the unknown wire type %d", v.number, v.wire)
		}
		if size > uint64(len(message)) {
			return errTruncated
		}
		if v.wire == wireBytes {
			v.data = message[:size]
		}
		message = message[size:]
		if v.number == 0 || v.number > maxField {
			return fmt.Errorf("a field has the number %d", v.number)
		}
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

// decoder counts what a response contains.
type decoder struct{ ids int }

// count counts one more and returns an error if there are too many.
func (d *decoder) count() error {
	if d.ids++; d.ids > MaxIDs {
		return fmt.Errorf("more than %d CPUs, devices, memory blocks, groups of them and NUMA nodes", MaxIDs)
	}
	return nil
}

// message decodes the field as a message.
func (v field) message(f func(field) error) error {
	if v.wire != wireBytes {
		return errWire
	}
	return each(v.data, f)
}

// text stores the field as a string.
func (v field) text(to *string) error {
	if v.wire != wireBytes {
		return errWire
	}
	if !utf8.Valid(v.data) {
		return errors.New("a string is not valid UTF-8")
	}
	*to = string(v.data)
	return nil
}

// numbers appends the field to a list of numbers, which may be packed.
func (d *decoder) numbers(v field, to *[]int64) error {
	switch v.wire {
	case wireVarint:
		*to = append(*to, int64(v.value))
		return d.count()
	case wireBytes:
		for packed := v.data; len(packed) > 0; {
			value, n := binary.Uvarint(packed)
			if n <= 0 {
				return errTruncated
			}
			packed = packed[n:]
			*to = append(*to, int64(value))
			if err := d.count(); err != nil {
				return err
			}
		}
		return nil
	}
	return errWire
}

func decodeList(message []byte) ([]Pod, error) {
	d := &decoder{}
	var pods []Pod
	err := each(message, func(v field) error {
		if v.number != 1 {
			return nil
		}
		if len(pods) == MaxPods {
			return fmt.Errorf("more than %d pods", MaxPods)
		}
		p := Pod{}
		err := v.message(func(v field) error { return d.pod(v, &p) })
		pods = append(pods, p)
		return err
	})
	return pods, err
}

func decodeAllocatable(message []byte) (*Allocatable, error) {
	d := &decoder{}
	a := &Allocatable{}
	err := each(message, func(v field) error {
		switch v.number {
		case 1:
			return d.devices(v, &a.Devices)
		case 2:
			return d.numbers(v, &a.CPUs)
		case 3:
			return d.memory(v, &a.Memory)
		}
		return nil
	})
	return a, err
}

func (d *decoder) pod(v field, p *Pod) error {
	switch v.number {
	case 1:
		return v.text(&p.Name)
	case 2:
		return v.text(&p.Namespace)
	case 3:
		c := Container{}
		err := v.message(func(v field) error { return d.container(v, &c) })
		p.Containers = append(p.Containers, c)
		return errors.Join(err, d.count())
	case 4:
		return d.numbers(v, &p.CPUs)
	case 5:
		return d.memory(v, &p.Memory)
	}
	return nil
}

func (d *decoder) container(v field, c *Container) error {
	switch v.number {
	case 1:
		return v.text(&c.Name)
	case 2:
		return d.devices(v, &c.Devices)
	case 3:
		return d.numbers(v, &c.CPUs)
	case 4:
		return d.memory(v, &c.Memory)
	case 5:
		return d.claims(v, &c.Claims)
	}
	return nil
}

func (d *decoder) devices(v field, to *[]Devices) error {
	one := Devices{}
	err := v.message(func(v field) error {
		switch v.number {
		case 1:
			return v.text(&one.Resource)
		case 2:
			one.IDs = append(one.IDs, "")
			return errors.Join(d.count(), v.text(&one.IDs[len(one.IDs)-1]))
		case 3:
			return d.topology(v, &one.Topology)
		}
		return nil
	})
	*to = append(*to, one)
	return errors.Join(err, d.count())
}

func (d *decoder) memory(v field, to *[]Memory) error {
	one := Memory{}
	err := v.message(func(v field) error {
		switch v.number {
		case 1:
			return v.text(&one.Type)
		case 2:
			if v.wire != wireVarint {
				return errWire
			}
			one.Bytes = v.value
		case 3:
			return d.topology(v, &one.Topology)
		}
		return nil
	})
	*to = append(*to, one)
	return errors.Join(err, d.count())
}

func (d *decoder) topology(v field, to *Topology) error {
	if *to == nil {
		*to = Topology{}
	}
	return v.message(func(v field) error {
		if v.number != 1 {
			return nil
		}
		id := int64(0) // the value of an absent field
		err := v.message(func(v field) error {
			if v.number != 1 {
				return nil
			}
			if v.wire != wireVarint {
				return errWire
			}
			id = int64(v.value)
			return nil
		})
		*to = append(*to, id)
		return errors.Join(err, d.count())
	})
}

// claims appends the devices of a claim, or the claim alone if it has none.
func (d *decoder) claims(v field, to *[]Claim) error {
	claim := Claim{}
	var devices []Claim
	err := v.message(func(v field) error {
		switch v.number {
		case 2:
			return v.text(&claim.Name)
		case 3:
			return v.text(&claim.Namespace)
		case 4:
			device := Claim{}
			err := v.message(func(v field) error {
				switch v.number {
				case 2:
					return v.text(&device.Driver)
				case 3:
					return v.text(&device.Pool)
				case 4:
					return v.text(&device.Device)
				}
				return nil
			})
			devices = append(devices, device)
			return errors.Join(err, d.count())
		}
		return nil
	})
	if len(devices) == 0 {
		devices = []Claim{claim}
	}
	for _, device := range devices {
		device.Namespace, device.Name = claim.Namespace, claim.Name
		*to = append(*to, device)
	}
	return errors.Join(err, d.count())
}
