"""`rekindle devices`: the slots of the machine; disable and enable one."""

from typing import Annotated

import typer
from typer import Argument, Option

from rekindle_service.cli import formatting
from rekindle_service.cli.command_help import Command, Group
from rekindle_service.cli.context import connect
from rekindle_service.cli.output import OutputOption, out, print_answer, print_line
from rekindle_service.cli.tables import Table
from rekindle_service.client import Device
from rekindle_service.sanitize import sanitize_line

_COLUMNS = ("DEVICE", "STATE", "JOBS", "MODEL", "NUMA", "REASON")
_CUT = {"JOBS": 10, "MODEL": 12, "REASON": 20}  # cells
_Name = Annotated[str, Argument(metavar="DEVICE", help="Name of the slot, as in cuda:0 or cpu:1.")]

devices = typer.Typer(name="devices", cls=Group, invoke_without_command=True)


@devices.callback()
def list_devices(context: typer.Context, output: OutputOption = "table") -> None:
    """List GPUs and CPU slots with their jobs; disable or enable one."""
    if context.invoked_subcommand is not None:
        return
    with connect(context) as client:
        slots = client.devices()["items"]
    if not print_answer(output, slots, (each["name"] for each in slots)):
        out().print(Table(_COLUMNS, map(_row, slots), cut=_CUT, drop=("NUMA",), wrap="REASON"))


@devices.command(cls=Command)
def disable(
    context: typer.Context,
    device: _Name,
    reason: Annotated[str, Option(help="Why, for others to read. (default: none)")] = "",
    output: OutputOption = "table",
) -> None:
    """Disable a device: its jobs leave it, and no other gets it.

    For administrators.
    """
    with connect(context) as client:
        row = client.disable_device(device, reason)
    if not print_answer(output, row, [row["name"]]):
        print_line(f"{row['name']} is {sanitize_line(row['unusable'] or 'disabled')}")


@devices.command(cls=Command)
def enable(context: typer.Context, device: _Name, output: OutputOption = "table") -> None:
    """Enable a device that a person or a fault has disabled.

    For administrators.
    """
    with connect(context) as client:
        row = client.enable_device(device)
    still = f", but it is not used now: {sanitize_line(row['unusable'])}" if row["unusable"] else ""
    if not print_answer(output, row, [row["name"]]):
        print_line(f"{row['name']} is enabled{still}")


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
