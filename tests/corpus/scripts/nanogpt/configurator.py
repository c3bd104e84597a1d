"""Overrides the globals of train.py by --key=value; run by exec, not imported."""

import ast
import sys

for argument in sys.argv[1:]:
    if not argument.startswith("--") or "=" not in argument:
        raise ValueError(f"expected --key=value, not {argument}")
    key, value = argument[2:].split("=", 1)
    if key not in globals():
        raise ValueError(f"Unknown config key: {key}")
    try:
        parsed = ast.literal_eval(value)
    except (SyntaxError, ValueError):
        parsed = value
    if type(parsed) is not type(globals()[key]):
        raise TypeError(f"{key}: {type(globals()[key]).__name__} expected, not {value}")
    print(f"Overriding: {key} = {parsed}")
    globals()[key] = parsed
