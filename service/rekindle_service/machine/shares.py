"""How much of each slot is free, where jobs may share a GPU (``JobSpec.gpu_share``). Pure."""

from collections.abc import Container, Iterable, Mapping, Sequence

from rekindle_service.machine.devices import Machine, Slot

_ROUNDING = 1e-6
"""Three times a third is a whole."""


def free_shares(
    machine: Machine, holding: Iterable[tuple[Iterable[str], float]], unusable: Container[str] = ()
) -> dict[str, float]:
    """What is free of each slot, 0 to 1, by name. ``holding``: the slots of each job and its share of each.

    Slots that are ``unusable`` have nothing free.
    """
    free = {slot.name: 0.0 if slot.name in unusable else 1.0 for slot in machine.slots}
    for slots, share in holding:
        for name in slots:
            if name in free:
                free[name] = max(0.0, free[name] - share)
    return {name: 0.0 if share < _ROUNDING else share for name, share in free.items()}


def slots_with_room(slots: Iterable[Slot], free: Mapping[str, float], share: float) -> list[Slot]:
    """Those of ``slots`` of which ``share`` is free, in their order; of a whole one, nothing is in use."""
    return [slot for slot in slots if free.get(slot.name, 0.0) + _ROUNDING >= share]


def fullest_first(slots: Sequence[Slot], free: Mapping[str, float]) -> list[Slot]:
    """For jobs that share: on GPUs that others share already, so that whole ones stay free."""
    return sorted(slots, key=lambda slot: (round(free.get(slot.name, 0.0), 6), slot.index))
