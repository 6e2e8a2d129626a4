package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
)

// fill makes v something that can be drawn, nil and empty values among it.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64))
	case reflect.String:
		v.SetString([]string{"", "a", "ä<&>\u2028\"\\", "null", "{", strings.Repeat("x", r.IntN(50))}[r.IntN(6)])
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	default:
		if r.IntN(4) > 0 {
			fillNilable(r, v)
		}
	}
}

func fillNilable(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key)
			fill(r, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Interface:
		one, two := sentinels[r.IntN(len(sentinels))], sentinels[r.IntN(len(sentinels))]
		v.Set(reflect.ValueOf(fmt.Errorf("for %d reasons: %w: %w", r.IntN(9), one.err, two.err)))
	default:
		panic(fmt.Sprintf("nobody knows how to draw a %s", v.Type()))
	}
}

func TestOpsComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, zero := range ops {
		for range 200 {
			v := reflect.New(reflect.TypeOf(zero)).Elem()
			fill(r, v)
			op := v.Interface().(controller.Op)
			data, err := EncodeOp(op)
			if err != nil {
				t.Fatalf("%T: %v", op, err)
			}
			again, _ := EncodeOp(op)
			if !bytes.Equal(data, again) {
				t.Fatalf("two encodings of %+v:\n%s\n%s", op, data, again)
			}
			got, err := DecodeOp(data)
			if err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if !reflect.DeepEqual(got, op) {
				t.Fatalf("%+v came back as %+v\n%s", op, got, data)
			}
		}
	}
}

func TestAnswersComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	wrapped := 0
	for range 500 {
		var a controller.Answer
		fill(r, reflect.ValueOf(&a).Elem())
		data := EncodeAnswer(a)
		got, err := DecodeAnswer(data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		wrapped += sameErrors(t, reflect.ValueOf(got), reflect.ValueOf(a))
		if again := EncodeAnswer(got); !bytes.Equal(again, data) {
			t.Fatalf("%s came back as\n%s", data, again)
		}
	}
	if wrapped < 500 {
		t.Fatalf("%d errors were compared", wrapped)
	}
}

// sameErrors compares what two values are, and wrap, and counts the errors.
func sameErrors(t *testing.T, got, want reflect.Value) (n int) {
	t.Helper()
	switch got.Kind() {
	case reflect.Struct:
		for i := range got.NumField() {
			n += sameErrors(t, got.Field(i), want.Field(i))
		}
	case reflect.Slice:
		if got.Len() != want.Len() || got.IsNil() != want.IsNil() {
			t.Fatalf("%d elements instead of %d", got.Len(), want.Len())
		}
		for i := range got.Len() {
			n += sameErrors(t, got.Index(i), want.Index(i))
		}
	case reflect.Interface:
		g, _ := got.Interface().(error)
		w, _ := want.Interface().(error)
		if w == nil || g == nil {
			if w != nil || g != nil {
				t.Fatalf("the error %v came back as %v", w, g)
			}
			return 0
		}
		if g.Error() != w.Error() {
			t.Fatalf("the error %q came back as %q", w, g)
		}
		for _, s := range sentinels {
			if errors.Is(g, s.err) != errors.Is(w, s.err) {
				t.Fatalf("the error %q came back, and %s is not in both", w, s.name)
			}
		}
		return 1
	default:
		if !reflect.DeepEqual(got.Interface(), want.Interface()) {
			t.Fatalf("%v came back as %v", want, got)
		}
	}
	return n
}

// What an error wraps beside sentinels does not cross, and its sentence is bounded.
func TestErrorsCross(t *testing.T) {
	long := fmt.Errorf("%s\xff%s: %w: %w", strings.Repeat("ä", textBytesMax/4), strings.Repeat("b", textBytesMax), model.ErrStorage, context.Canceled)
	a, err := DecodeAnswer(EncodeAnswer(controller.Answer{Err: long}))
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(a.Err, model.ErrStorage) || errors.Is(a.Err, context.Canceled) || len(a.Err.Error()) > textBytesMax+8 {
		t.Fatalf("%d bytes, %v", len(a.Err.Error()), a.Err)
	}
	// Of a newer node: a sentinel and a field that nobody knows here.
	a, err = DecodeAnswer([]byte("\x01" + `{"New":{"a":[1,{"b":[]}]},"Epoch":7,"Err":{"Text":"t","Is":["ErrOfTheFuture","ErrNotController"]}}`))
	if err != nil || a.Epoch != 7 || !errors.Is(a.Err, model.ErrNotController) || a.Err.Error() != "t" {
		t.Fatalf("%+v, %v", a, err)
	}
}

func TestTooLarge(t *testing.T) {
	huge := make([]model.TopicRef, BytesMax/2)
	if _, err := EncodeOp(controller.DeleteTopics{Topics: huge}); !errors.Is(err, model.ErrInvalidRequest) {
		t.Errorf("a huge operation: %v", err)
	}
	if _, err := EncodeOp(controller.DeleteTopics{Topics: []model.TopicRef{{Name: "\xff"}}}); !errors.Is(err, model.ErrInvalidRequest) {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
	a, err := DecodeAnswer(EncodeAnswer(controller.Answer{Topics: make([]model.TopicResult, BytesMax)}))
	if err != nil || !errors.Is(a.Err, model.ErrRequestTimedOut) {
		t.Errorf("a huge answer: %+v, %v", a.Err, err)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	deep := strings.Repeat("[", 100)
	for name, c := range map[string]struct {
		data string
		want error
	}{
		"nothing":             {"", model.ErrInvalidRequest},
		"another version":     {"\x02{}", model.ErrUnsupportedVersion},
		"no JSON":             {"\x01hello", model.ErrInvalidRequest},
		"no operation":        {"\x01{}", model.ErrInvalidRequest},
		"no object":           {"\x01[]", model.ErrInvalidRequest},
		"cut off":             {"\x01" + `{"DeleteTopics":{"Topics":[{"Name":"a"}`, model.ErrInvalidRequest},
		"an unknown one":      {"\x01" + `{"FormatDisks":{}}`, model.ErrUnsupportedVersion},
		"an unknown field":    {"\x01" + `{"DeleteTopics":{"Topics":[],"Force":true}}`, model.ErrUnsupportedVersion},
		"another case":        {"\x01" + `{"DeleteTopics":{"topics":[]}}`, model.ErrUnsupportedVersion},
		"a field twice":       {"\x01" + `{"DeleteTopics":{"Topics":[],"Topics":[]}}`, model.ErrInvalidRequest},
		"a key twice":         {"\x01" + `{"CreateTopics":{"Topics":[{"Assignment":{"1":[],"1":[]}}]}}`, model.ErrInvalidRequest},
		"a key's other form":  {"\x01" + `{"CreateTopics":{"Topics":[{"Assignment":{"01":[]}}]}}`, model.ErrInvalidRequest},
		"two operations":      {"\x01" + `{"DeleteTopics":{},"DeleteTopics":{}}`, model.ErrInvalidRequest},
		"something behind it": {"\x01" + `{"DeleteTopics":{}} {}`, model.ErrInvalidRequest},
		"too large a number":  {"\x01" + `{"FenceBroker":{"ID":2147483648}}`, model.ErrInvalidRequest},
		"a fraction":          {"\x01" + `{"FenceBroker":{"ID":1.5}}`, model.ErrInvalidRequest},
		"another kind":        {"\x01" + `{"FenceBroker":{"ID":"1"}}`, model.ErrInvalidRequest},
		"a short ID":          {"\x01" + `{"ConfirmRemoval":{"Directory":"00"}}`, model.ErrInvalidRequest},
		"no hexadecimal":      {"\x01" + `{"ConfirmRemoval":{"Directory":"` + strings.Repeat("x", 32) + `"}}`, model.ErrInvalidRequest},
		"null for a number":   {"\x01" + `{"FenceBroker":{"ID":null}}`, model.ErrInvalidRequest},
		"too deep":            {"\x01" + `{"CreatePartitions":{"More":` + deep, model.ErrInvalidRequest},
		"not UTF-8":           {"\x01" + "{\"DeleteTopics\":{\"Topics\":[{\"Name\":\"\xff\"}]}}", model.ErrInvalidRequest},
		"too long":            {"\x01" + `{"DeleteTopics":{}}` + strings.Repeat(" ", BytesMax), model.ErrInvalidRequest},
	} {
		if op, err := DecodeOp([]byte(c.data)); !errors.Is(err, c.want) || op != nil {
			t.Errorf("%s: %+v, %v", name, op, err)
		}
	}
	for name, data := range map[string]string{
		"nothing":                   "",
		"another version":           "\x02{}",
		"an unknown field too deep": "\x01" + `{"New":` + deep + strings.Repeat("]", 100) + `}`,
		"null":                      "\x01null",
		"something behind it":       "\x01{}{}",
		"an error that is a text":   "\x01" + `{"Err":"ErrStorage"}`,
	} {
		if a, err := DecodeAnswer([]byte(data)); !errors.Is(err, ErrMalformed) || !reflect.DeepEqual(a, controller.Answer{}) {
			t.Errorf("an answer, %s: %+v, %v", name, a, err)
		}
	}
}

// Memory is a multiple of what was sent: the worst are lists of the largest elements.
func TestMemoryIsBounded(t *testing.T) {
	for _, data := range []string{
		"\x01" + `{"CreateTopics":{"Topics":[` + strings.Repeat("{},", 20_000) + `{}]}}`,
		"\x01" + `{"CreateTopics":{"Topics":[` + strings.Repeat(`{"Configs":{}},`, 20_000) + `{}]}}`,
		"\x01" + `{"Topics":[` + strings.Repeat("{},", 20_000) + `{}]}`,
	} {
		var decode func() error
		if strings.HasPrefix(data, "\x01"+`{"CreateTopics`) {
			decode = func() error { _, err := DecodeOp([]byte(data)); return err }
		} else {
			decode = func() error { _, err := DecodeAnswer([]byte(data)); return err }
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := decode(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		got := after.TotalAlloc - before.TotalAlloc
		if most := uint64(600 * len(data)); got == 0 || got > most {
			t.Errorf("%d bytes for %d of %.40q", got, len(data), data)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, zero := range ops {
		v := reflect.New(reflect.TypeOf(zero)).Elem()
		fill(r, v)
		data, err := EncodeOp(v.Interface().(controller.Op))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for range 5 {
		var a controller.Answer
		fill(r, reflect.ValueOf(&a).Elem())
		f.Add(EncodeAnswer(a))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if op, err := DecodeOp(data); err == nil {
			again, err := EncodeOp(op)
			if err != nil {
				t.Fatalf("%+v was decoded and cannot be encoded: %v", op, err)
			}
			back, err := DecodeOp(again)
			if err != nil || !reflect.DeepEqual(back, op) {
				t.Fatalf("%+v came back as %+v, %v", op, back, err)
			}
		} else if !slices.ContainsFunc([]error{model.ErrInvalidRequest, model.ErrUnsupportedVersion}, func(s error) bool { return errors.Is(err, s) }) {
			t.Fatalf("a command is answered with %v", err)
		}
		a, err := DecodeAnswer(data)
		if err != nil {
			return
		}
		first := EncodeAnswer(a)
		back, err := DecodeAnswer(first)
		if err != nil || !bytes.Equal(EncodeAnswer(back), first) {
			t.Fatalf("%s came back as %+v, %v", first, back, err)
		}
	})
}
