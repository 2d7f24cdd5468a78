#!/usr/bin/env python3
"""Prints engine/tokenizer/code_point_ranges.inc: the code points that are letters or numbers, of this Python's Unicode.

Run it with the Python that knows the newest Unicode at hand; the version is written into the file.
"""
import unicodedata


def ranges():
    """Yields (first, last, class) of maximal runs of the general categories L* and N*."""
    run = None
    for code in range(0x80, 0x110000):
        kind = unicodedata.category(chr(code))[0]
        kind = kind if kind in "LN" else None
        if run and run[2] == kind:
            run = (run[0], code, kind)
            continue
        if run and run[2]:
            yield run
        run = (code, code, kind)
    if run and run[2]:
        yield run


def main():
    print(f"// Letters (L) and numbers (N) from U+0080 on, Unicode {unicodedata.unidata_version};")
    print("// written by tools/unicode/code_point_classes.py.")
    line = ""
    for first, last, kind in ranges():
        item = f"{{0x{first:x}, 0x{last:x}, {kind}}},"
        if len(line) + 1 + len(item) > 120:
            print(line)
            line = ""
        line = f"{line} {item}" if line else item
    print(line)


if __name__ == "__main__":
    main()
