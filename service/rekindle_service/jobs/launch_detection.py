"""Which scripts start all their processes themselves, so that torchrun must not: found in the source, where it is sure.

Nothing is run. A script that may also be meant for torchrun, because it reads the variables of its ranks or leaves the
launch to a library, is no certain case.
"""

import ast
from collections.abc import Iterator
from contextlib import suppress

from rekindle_service.loading import PARSING

_RANK_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE"}
_LAUNCHING_LIBRARIES = {"accelerate", "deepspeed", "lightning", "pytorch_lightning", "ray", "rekindle", "transformers"}
_SPAWN = {"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"}
_PROCESS = {"torch.multiprocessing.Process", "multiprocessing.Process"}
_DATA_PARALLEL = {"torch.nn.DataParallel", "torch.nn.parallel.DataParallel"}
_INIT = "torch.distributed.init_process_group"


def reason_for_one_process(source: bytes) -> str | None:
    """Why torchrun must not start this script, as the end of a sentence about it; None where that is not sure."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        with PARSING:
            tree = ast.parse(source)
        return _reason(tree)
    return None


def _reason(tree: ast.Module) -> str | None:
    names = dict(_imported(tree))
    packages = {name.partition(".")[0] for name in names.values()}
    if packages & _LAUNCHING_LIBRARIES or _reads_rank_variables(tree):
        return None
    calls = [(_full_name(node.func, names), node) for node in _unconditional(tree) if isinstance(node, ast.Call)]
    for name, node in calls:
        if name in _SPAWN:
            return f"it starts its own processes by {name} in line {node.lineno}"
    every = [(_full_name(node.func, names), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    numbered = any(
        name == _INIT and {"rank", "world_size"} <= {each.arg for each in node.keywords} for name, node in every
    )
    for name, node in every:
        if name in _PROCESS and numbered:
            return f"it starts its own processes by {name} in line {node.lineno}"
        if name in _DATA_PARALLEL and not _is_distributed(tree, names):
            return f"it uses several GPUs in one process by {name} in line {node.lineno}"
    return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each name that an import binds, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _full_name(node: ast.expr, names: dict[str, str]) -> str | None:
    """``torch.multiprocessing.spawn`` for ``mp.spawn`` after ``import torch.multiprocessing as mp``."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _full_name(node.value, names)) is not None:
        return f"{owner}.{node.attr}"
    return None


def _unconditional(node: ast.AST) -> Iterator[ast.AST]:
    """Everything but what runs under a condition other than ``if __name__ == "__main__"``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and not _is_main_guard(child.test):
            continue
        if not isinstance(child, ast.IfExp | ast.Try):
            yield child
            yield from _unconditional(child)


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and any(
        isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(test)
    )


def _reads_rank_variables(tree: ast.Module) -> bool:
    """``os.environ["RANK"] = …`` only sets one."""
    stored = {
        id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    }
    return any(
        isinstance(node, ast.Constant) and node.value in _RANK_VARIABLES and id(node) not in stored
        for node in ast.walk(tree)
    )


def _is_distributed(tree: ast.Module, names: dict[str, str]) -> bool:
    used = {_full_name(node, names) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return any(str(name).startswith("torch.distributed") for name in {*used, *imported, *names.values()})
