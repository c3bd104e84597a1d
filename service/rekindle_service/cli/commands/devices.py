"""`rekindle devices`: the slots of the machine, and putting them aside."""

from typing import Annotated

import typer
from typer import Argument, Option

from rekindle_service.cli import formatting
from rekindle_service.cli.context import connect
from rekindle_service.cli.formatting import OutputOption, out, print_answer
from rekindle_service.cli.tables import Table
from rekindle_service.client import Device
from rekindle_service.sanitize import sanitize_line

_COLUMNS = ("DEVICE", "STATE", "JOBS", "MODEL", "NUMA", "REASON")
_CUT = {"JOBS": 10, "MODEL": 12, "REASON": 20}  # cells
_Name = Annotated[str, Argument(metavar="DEVICE", help="Name of the slot, as in cuda:0 or cpu:1.")]

devices = typer.Typer(
    invoke_without_command=True, help="List GPUs and CPU slots with their jobs; put one aside, or use it again."
)


@devices.callback()
def list_devices(context: typer.Context, output: OutputOption = "table") -> None:
    """List GPUs and CPU slots with the jobs that hold them, and why one is not used."""
    if context.invoked_subcommand is not None:
        return
    with connect(context) as client:
        slots = client.devices()["items"]
    if not print_answer(output, slots, (each["name"] for each in slots)):
        out().print(Table(_COLUMNS, map(_row, slots), cut=_CUT, drop=("NUMA",), wrap="REASON"))


@devices.command()
def disable(
    context: typer.Context, device: _Name, reason: Annotated[str, Option(help="Why, for others to read.")] = ""
) -> None:
    """Put a device aside, as an administrator: no job gets it, and jobs that run on it leave it."""
    with connect(context) as client:
        row = client.disable_device(device, reason)
    out().print(f"{row['name']} is put aside: {sanitize_line(row['unusable'] or '')}")


@devices.command()
def enable(context: typer.Context, device: _Name) -> None:
    """Use a device again, as an administrator, that was put aside by a person or after a fault."""
    with connect(context) as client:
        row = client.enable_device(device)
    still = f", but it is not used now: {sanitize_line(row['unusable'])}" if row["unusable"] else ""
    out().print(f"{row['name']} is enabled{still}")


def _row(slot: Device) -> list[str]:
    node = formatting.ABSENT if slot["numa_node"] is None else str(slot["numa_node"])
    jobs = " ".join(slot["jobs"]) or formatting.ABSENT
    model = sanitize_line(slot["model"] or formatting.ABSENT)
    return [slot["name"], state_of(slot), jobs, model, node, sanitize_line(slot["unusable"] or "")]


def state_of(slot: Device) -> str:
    """``held``, ``75 % free``, ``disabled``, ``in use`` by processes of no job, or ``free``."""
    if slot["disabled"]:
        return "disabled"
    if slot["held"]:
        return f"{slot['free_share']:.0%} free" if slot["free_share"] else "held"
    return "in use" if slot["unusable"] else "free"
