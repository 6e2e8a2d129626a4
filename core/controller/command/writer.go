package command

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// errorType is the one interface that can be within an operation or an answer.
var errorType = reflect.TypeFor[error]()

// writer writes values as JSON.
type writer struct {
	out    []byte
	failed error
}

// err is why what was written cannot be sent, or nil.
func (w *writer) err() error {
	if w.failed == nil && len(w.out) > BytesMax {
		return fmt.Errorf("%d bytes, of which at most %d fit", len(w.out), BytesMax)
	}
	return w.failed
}

func (w *writer) fail(err error) {
	if w.failed == nil {
		w.failed = err
	}
}

// value writes any value of the types that TestEveryTypeCanCross allows.
func (w *writer) value(v reflect.Value) {
	if len(w.out) > BytesMax {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		w.out = strconv.AppendBool(w.out, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.out = strconv.AppendInt(w.out, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.out = strconv.AppendUint(w.out, v.Uint(), 10)
	case reflect.String:
		w.text(v.String())
	case reflect.Array:
		w.array(v)
	case reflect.Struct:
		w.structure(v)
	default:
		w.nilable(v)
	}
}

// nilable writes a value that may be nil.
func (w *writer) nilable(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface:
	default:
		w.fail(fmt.Errorf("a value of type %s", v.Type()))
		return
	}
	if v.IsNil() {
		w.out = append(w.out, "null"...)
		return
	}
	switch v.Kind() {
	case reflect.Slice:
		w.slice(v)
	case reflect.Map:
		w.mapping(v)
	case reflect.Pointer:
		w.value(v.Elem())
	default:
		err, ok := v.Interface().(error)
		if !ok || v.Type() != errorType {
			w.fail(fmt.Errorf("a value of type %s", v.Type()))
			return
		}
		w.value(reflect.ValueOf(toWire(err)))
	}
}

// text writes a string, which JSON would change if it is not UTF-8.
func (w *writer) text(s string) {
	if !utf8.ValidString(s) {
		w.fail(errors.New("text that is not UTF-8"))
		return
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		w.fail(err)
	}
	w.out = append(w.out, quoted...)
}

func (w *writer) array(v reflect.Value) {
	if v.Type().Elem().Kind() != reflect.Uint8 {
		w.fail(fmt.Errorf("a value of type %s", v.Type()))
		return
	}
	bytes := make([]byte, v.Len())
	reflect.Copy(reflect.ValueOf(bytes), v)
	w.text(hex.EncodeToString(bytes))
}

func (w *writer) structure(v reflect.Value) {
	w.out = append(w.out, '{')
	first := true
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		if !first {
			w.out = append(w.out, ',')
		}
		first = false
		w.text(v.Type().Field(i).Name)
		w.out = append(w.out, ':')
		w.value(v.Field(i))
	}
	w.out = append(w.out, '}')
}

func (w *writer) slice(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		w.text(base64.StdEncoding.EncodeToString(v.Bytes()))
		return
	}
	w.out = append(w.out, '[')
	for i := range v.Len() {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.value(v.Index(i))
	}
	w.out = append(w.out, ']')
}

// mapping writes a map in the order of its keys.
func (w *writer) mapping(v reflect.Value) {
	type member struct {
		key   string
		value reflect.Value
	}
	members := make([]member, 0, v.Len())
	for each := v.MapRange(); each.Next(); {
		key, err := mapKey(each.Key())
		if err != nil {
			w.fail(err)
			return
		}
		members = append(members, member{key, each.Value()})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	w.out = append(w.out, '{')
	for i, m := range members {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.text(m.key)
		w.out = append(w.out, ':')
		w.value(m.value)
	}
	w.out = append(w.out, '}')
}

func mapKey(v reflect.Value) (string, error) {
	switch v.Kind() {
	case reflect.String:
		return v.String(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), nil
	default:
		return "", fmt.Errorf("a key of type %s", v.Type())
	}
}

// clip returns the beginning of a sentence, as UTF-8.
func clip(s string) string {
	if len(s) > textBytesMax {
		s = s[:textBytesMax]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
