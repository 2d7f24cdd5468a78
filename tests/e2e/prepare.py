"""Fixture of all end-to-end tests: copies programs, makes the models. With `clean` removes them."""

import shutil
import sys

import harness

if sys.argv[1:] == ["clean"]:
    shutil.rmtree(harness.SHARED, ignore_errors=True)
else:
    harness.prepare()
