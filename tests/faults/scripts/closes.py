"""Closes or removes its standard output before its end, which the interpreter does not mind."""

import sys

print("begun", flush=True)
if sys.argv[1] == "close":
    sys.stdout.close()
else:
    sys.stdout = sys.stderr = None
