"""A mypy plugin: ``Json[Model]`` is the dictionary that a model of ``schemas`` becomes in the JSON of an answer.

The client returns dictionaries and needs no model at run time. To mypy each is a ``TypedDict`` with the fields of its
model, and so are the classes within these fields: models are declared once, and a misspelled key is an error.
"""

from collections.abc import Callable, Iterator

from mypy.expandtype import expand_type_by_instance
from mypy.maptype import map_instance_to_supertype
from mypy.nodes import Var
from mypy.plugin import AnalyzeTypeContext, Plugin
from mypy.types import Instance, TupleType, Type, TypeAliasType, TypedDictType, UnionType, get_proper_type

_JSON = "rekindle_service.client.answers.Json"
_TIMESTAMP = {"builtins.float", "builtins.int"}
"""Both numbers are in no union but ``schemas.fields.Timestamp``."""
_OUTCOME_JSON = "rekindle_service.schemas.fields.OutcomeJson"
_OUTCOME = "rekindle.contract.outcome.Outcome"
_KEYS = {"klass": "class", "keep_last": "keep"}
"""Keys that differ from the names of their fields."""
_TABLES = {
    "rekindle_service.schemas.job_requests.OptionFields": "rekindle.contract.job_options.JobOptions",
    "rekindle_service.schemas.job_requests.SlurmRequest": "rekindle.contract.job_options.SlurmOptions",
    "rekindle_service.schemas.job_requests.SnapshotPolicyOptions": "rekindle.contract.job_options.SnapshotPolicy",
}
"""Classes whose fields are those of other ones, as they are made of these at run time."""
_ONLY_IN_SPEC = {"kind", "env_from", "min_ranks", "max_ranks", "min_nodes"}


class JsonTypes(Plugin):
    def get_type_analyze_hook(self, fullname: str) -> Callable[[AnalyzeTypeContext], Type] | None:
        return _analyze if fullname == _JSON else None


def plugin(version: str) -> type[Plugin]:
    """The plugin, for mypy, which looks for this name."""
    return JsonTypes


def _analyze(context: AnalyzeTypeContext) -> Type:
    return _JsonOf(context).type_of(context.api.analyze_type(context.type.args[0]))


class _JsonOf:
    """From the types of a model's fields to those of its JSON."""

    def __init__(self, context: AnalyzeTypeContext) -> None:
        self._named = context.api.named_type

    def type_of(self, found: Type) -> Type:
        alias = found.alias.fullname if isinstance(found, TypeAliasType) and found.alias else None
        if alias == _OUTCOME_JSON:
            return self._typed_dict(self._named(_OUTCOME, []))
        proper = get_proper_type(found)
        if isinstance(proper, UnionType):
            return UnionType.make_union(self._items_of(proper))
        if isinstance(proper, TupleType):
            return proper.copy_modified(items=[self.type_of(item) for item in proper.items])
        if not isinstance(proper, Instance):
            return proper
        if proper.type.is_enum:
            return self._named("builtins.str", [])
        if proper.type.module_name.startswith("rekindle"):
            return self._typed_dict(proper)
        return proper.copy_modified(args=[self.type_of(each) for each in proper.args])

    def _items_of(self, union: UnionType) -> list[Type]:
        """The items of a union; a time, which is one of two kinds of numbers, is text."""
        numbers = [item for item in map(get_proper_type, union.items) if isinstance(item, Instance)]
        if {item.type.fullname for item in numbers} != _TIMESTAMP:
            return [self.type_of(item) for item in union.items]
        others = [item for item in map(get_proper_type, union.items) if not isinstance(item, Instance)]
        return [self._named("builtins.str", []), *others]

    def _typed_dict(self, model: Instance) -> Type:
        items = {_KEYS.get(name, name): self.type_of(found) for name, found in self._fields(model)}
        return TypedDictType(items, set(items), set(), self._named("typing._TypedDict", []))

    def _fields(self, model: Instance) -> Iterator[tuple[str, Type]]:
        """The fields of a class with those that it inherits, which it may declare again."""
        for base in reversed(model.type.mro):
            if base.fullname in _TABLES:
                table = self._named(_TABLES[base.fullname], [])
                yield from ((name, found) for name, found in self._fields(table) if name not in _ONLY_IN_SPEC)
            owner = map_instance_to_supertype(model, base)
            for name, symbol in base.names.items() if base.module_name.startswith("rekindle") else ():
                node = symbol.node
                if isinstance(node, Var) and node.type is not None and not node.is_classvar and not node.is_inferred:
                    yield name, expand_type_by_instance(node.type, owner) if owner.args else node.type
