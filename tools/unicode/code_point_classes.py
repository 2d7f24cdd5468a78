#!/usr/bin/env python3
"""Prints engine/tokenizer/code_point_ranges.inc: the code points that are letters or numbers, of this Python's Unicode;
with --marks engine/tokenizer/code_point_marks.inc: the combining marks.

Run it with the Python that knows the newest Unicode at hand; the version is written into the file.
"""
import sys
import unicodedata


def ranges(classes):
    """Yields (first, last, class) of maximal runs of the general categories that begin with one of `classes`."""
    run = None
    for code in range(0x80, 0x110000):
        kind = unicodedata.category(chr(code))[0]
        kind = kind if kind in classes else None
        if run and run[2] == kind:
            run = (run[0], code, kind)
            continue
        if run and run[2]:
            yield run
        run = (code, code, kind)
    if run and run[2]:
        yield run


def main():
    marks = "--marks" in sys.argv
    what = "Combining marks (M)" if marks else "Letters (L) and numbers (N)"
    print(f"// {what} from U+0080 on, Unicode {unicodedata.unidata_version};")
    print("// written by tools/unicode/code_point_classes.py.")
    line = ""
    for first, last, kind in ranges("M" if marks else "LN"):
        item = f"{{0x{first:x}, 0x{last:x}, {kind}}},"
        if len(line) + 1 + len(item) > 120:
            print(line)
            line = ""
        line = f"{line} {item}" if line else item
    print(line)


if __name__ == "__main__":
    main()
