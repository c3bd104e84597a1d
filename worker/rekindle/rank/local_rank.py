"""The option ``--local_rank`` of scripts written for ``torch.distributed.launch``, which passed it to every process."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

_NAMES = ("--local_rank", "--local-rank")


def local_rank_arguments(source: bytes, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The option with the rank's number, for a script that defines it and reads LOCAL_RANK nowhere; else nothing.

    Nothing either where ``arguments`` have it already, or where there is one rank: a script without a number trains
    alone, as with plain ``python``.
    """
    if int(environment.get("WORLD_SIZE", "1")) < 2 or any(each.partition("=")[0] in _NAMES for each in arguments):
        return []
    if b"local" not in source or b"LOCAL_RANK" in source or b"add_subparsers" in source:
        return []
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return [f"{name}={environment['LOCAL_RANK']}" for name in _defined(ast.parse(source))][:1]
    return []


def _defined(tree: ast.AST) -> Iterator[str]:
    """The first of the names by which each ``add_argument`` or ``option`` defines it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name_of(node.func) in ("add_argument", "option"):
            names = [each.value for each in node.args if isinstance(each, ast.Constant) and each.value in _NAMES]
            yield from map(str, names[:1])


def _name_of(function: ast.expr) -> str | None:
    return function.attr if isinstance(function, ast.Attribute) else None
