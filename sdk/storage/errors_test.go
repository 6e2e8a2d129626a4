package storage_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/brokerd/brokerd/sdk/storage"
)

func TestClass(t *testing.T) {
	for _, class := range []error{
		storage.ErrRetry, storage.ErrFenced, storage.ErrCorrupt, storage.ErrFull, storage.ErrGone, storage.ErrInvalid, storage.ErrUnknown,
	} {
		err := fmt.Errorf("append to log 3: %w", storage.Errorf(class, "at offset %d", 42))
		if !errors.Is(err, class) || !errors.Is(storage.Class(err), class) {
			t.Errorf("%v has class %v; want %v", err, storage.Class(err), class)
		}
		if want := "append to log 3: " + class.Error() + ": at offset 42"; err.Error() != want {
			t.Errorf("the message is %q; want %q", err, want)
		}
	}
	if storage.Class(nil) != nil {
		t.Error("no error has a class")
	}
	if got := storage.Class(errors.New("disk on fire")); !errors.Is(got, storage.ErrGone) {
		t.Errorf("an error without a class is taken for %v; want gone, since its effect is not known", got)
	}
}
