package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// outputFlag adds -o to a command that shows something.
func outputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "table", "table for people, json for programs")
}

func checkOutput(cmd *cobra.Command, format string) error {
	if format != "table" && format != "json" {
		return usagef(cmd, "-o %s is neither table nor json", format)
	}
	return nil
}

// writeJSON writes one value, indented. v is plain data of this package.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// writeTable writes rows under a header, without lines.
func writeTable(w io.Writer, header []string, cells [][]string) error {
	rows := make([][]string, len(cells))
	for i := range cells {
		for _, cell := range cells[i] {
			rows[i] = append(rows[i], printable(cell))
		}
	}
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.AppendHeader(tableRow(header))
	for _, row := range rows {
		if !long(row) {
			t.AppendRow(tableRow(row))
		}
	}
	lines := strings.Split(t.Render(), "\n")
	for i, row := range rows { // long ones among the others, which are not padded for their sake
		if long(row) {
			lines = slices.Insert(lines, min(i+1, len(lines)), strings.TrimRight(strings.Join(row, "  "), " "))
		}
	}
	if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// printable is text with what is no letter or sign written as Go writes it: names of
// groups and clients are chosen by anybody, and must not move the cursor of who lists
// them.
func printable(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if (r == utf8.RuneError && size == 1) || !unicode.IsPrint(r) {
			quoted := strconv.Quote(text[:size])
			out.WriteString(quoted[1 : len(quoted)-1])
		} else {
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
	return out.String()
}

// longCell is more than a column is padded to.
const longCell = 60

// long reports whether a row has a cell, the last one apart, that is too long.
func long(row []string) bool {
	for _, cell := range row[:max(0, len(row)-1)] {
		if len(cell) > longCell {
			return true
		}
	}
	return false
}

func tableRow(cells []string) table.Row {
	out := make(table.Row, len(cells))
	for i, c := range cells {
		out[i] = c
	}
	return out
}
