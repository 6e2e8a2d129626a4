package command

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"unicode/utf8"
)

// errUnknown: a newer node has written it.
var errUnknown = errors.New("is not known to this node")

// reader reads JSON into values, one token after the other, so that nothing is allocated
// but for what is there. After its first error it reads nothing more.
type reader struct {
	d      *json.Decoder
	token  json.Token // the one that was read last
	depth  int
	strict bool // a field that is not known is an error
	err    error
}

// newReader looks at what is before the JSON.
func newReader(data []byte) (*reader, error) {
	switch {
	case len(data) == 0:
		return nil, errors.New("it is empty")
	case len(data) > BytesMax:
		return nil, fmt.Errorf("%d bytes, of which at most %d are read", len(data), BytesMax)
	case data[0] != Version:
		return nil, fmt.Errorf("version %d %w", data[0], errUnknown)
	case !utf8.Valid(data):
		return nil, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data[1:]))
	d.UseNumber()
	return &reader{d: d}, nil
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// next reads a token.
func (r *reader) next() {
	if r.err != nil {
		return
	}
	token, err := r.d.Token()
	if err != nil {
		r.fail(err)
		return
	}
	r.token = token
	switch token {
	case json.Delim('{'), json.Delim('['):
		if r.depth++; r.depth > depthMax {
			r.fail(fmt.Errorf("it is nested deeper than %d", depthMax))
		}
	case json.Delim('}'), json.Delim(']'):
		r.depth--
	}
}

// more says whether another element or member follows.
func (r *reader) more() bool { return r.err == nil && r.d.More() }

// end sees that nothing follows.
func (r *reader) end() {
	if r.err != nil {
		return
	}
	if _, err := r.d.Token(); !errors.Is(err, io.EOF) {
		r.fail(errors.New("something follows it"))
	}
}

// value reads the next value into v.
func (r *reader) value(v reflect.Value) {
	r.next()
	r.fill(v)
}

// fill makes v of the token that was read, and what belongs to it.
func (r *reader) fill(v reflect.Value) {
	if r.err != nil {
		return
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface:
		if r.token != nil {
			r.nilable(v)
		}
	case reflect.Bool:
		b, ok := r.token.(bool)
		r.check(ok, v)
		v.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(r.number(), 10, v.Type().Bits())
		r.check(err == nil, v)
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(r.number(), 10, v.Type().Bits())
		r.check(err == nil, v)
		v.SetUint(n)
	case reflect.String:
		s, ok := r.token.(string)
		r.check(ok, v)
		v.SetString(s)
	case reflect.Array:
		r.array(v)
	case reflect.Struct:
		r.structure(v)
	default:
		r.check(false, v)
	}
}

// check fails where something else was read than v is to be.
func (r *reader) check(ok bool, v reflect.Value) {
	if !ok {
		r.fail(fmt.Errorf("%.40q is no %s", fmt.Sprint(r.token), v.Type()))
	}
}

// number is empty where there is none.
func (r *reader) number() string {
	n, _ := r.token.(json.Number)
	return n.String()
}

func (r *reader) nilable(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		r.slice(v)
	case reflect.Map:
		r.mapping(v)
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		r.fill(p.Elem())
		v.Set(p)
	default:
		if v.Type() != errorType {
			r.check(false, v)
			return
		}
		var e wireError
		r.fill(reflect.ValueOf(&e).Elem())
		v.Set(reflect.ValueOf(fromWire(e)))
	}
}

func (r *reader) array(v reflect.Value) {
	s, _ := r.token.(string)
	if v.Type().Elem().Kind() != reflect.Uint8 || len(s) != hex.EncodedLen(v.Len()) {
		r.check(false, v)
		return
	}
	decoded, err := hex.DecodeString(s)
	r.check(err == nil, v)
	reflect.Copy(v, reflect.ValueOf(decoded))
}

func (r *reader) slice(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		s, ok := r.token.(string)
		decoded, err := base64.StdEncoding.Strict().DecodeString(s)
		r.check(ok && err == nil, v)
		v.SetBytes(decoded)
		return
	}
	if r.token != json.Delim('[') {
		r.check(false, v)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	zero := reflect.Zero(v.Type().Elem())
	for n := 0; r.more(); n++ {
		v.Set(reflect.Append(v, zero))
		r.value(v.Index(n))
	}
	r.next()
}

func (r *reader) mapping(v reflect.Value) {
	if r.token != json.Delim('{') {
		r.check(false, v)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	r.members(func(name string) {
		key := reflect.New(v.Type().Key()).Elem()
		if key.Kind() == reflect.String {
			key.SetString(name)
		} else {
			n, err := strconv.ParseInt(name, 10, key.Type().Bits())
			r.check(err == nil && strconv.FormatInt(n, 10) == name, key)
			key.SetInt(n)
		}
		if v.MapIndex(key).IsValid() {
			r.fail(fmt.Errorf("the key %.40q comes twice", name))
		}
		member := reflect.New(v.Type().Elem()).Elem()
		r.value(member)
		v.SetMapIndex(key, member)
	})
}

func (r *reader) structure(v reflect.Value) {
	if r.token != json.Delim('{') {
		r.check(false, v)
		return
	}
	var seen uint64
	r.members(func(name string) {
		field, known := v.Type().FieldByName(name)
		if !known {
			r.skip(name)
			return
		}
		if seen&(1<<field.Index[0]) != 0 {
			r.fail(fmt.Errorf("the field %q comes twice", name))
		}
		seen |= 1 << field.Index[0]
		r.value(v.Field(field.Index[0]))
	})
}

// skip reads the value of a field that is not known.
func (r *reader) skip(name string) {
	if r.strict {
		r.fail(fmt.Errorf("the field %.40q %w", name, errUnknown))
		return
	}
	outside := r.depth
	for r.next(); r.err == nil && r.depth > outside; {
		r.next()
	}
}

// object reads an object, and calls member before each of its values.
func (r *reader) object(member func(name string)) {
	r.next()
	if r.err == nil && r.token != json.Delim('{') {
		r.fail(errors.New("it is no object"))
	}
	r.members(member)
}

// members reads what is within an object, up to its end.
func (r *reader) members(member func(name string)) {
	for r.more() {
		r.next()
		name, ok := r.token.(string)
		if !ok {
			r.fail(errors.New("a member of an object has no name"))
			return
		}
		member(name)
	}
	r.next()
}
