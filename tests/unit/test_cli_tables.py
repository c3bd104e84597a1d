"""Tables fit the terminal: id, state and step stay whole, other columns are cut or dropped."""

from typing import Any

import pytest
from rich.text import Text

from cli_examples import job, printed
from rekindle_service.cli.commands import job_tables, top_views
from rekindle_service.cli.formatting import job_cells
from rekindle_service.cli.layout import Table, fit

LONG = "a name of 60 characters, for which no terminal has the room "
HOSTILE = "\x1b[2J恶意的名字恶意的名字恶意的名字恶意的名字\r\nnext"


def jobs_table(columns: tuple[str, ...], **options: Any) -> Table:
    return Table(columns, [[job_cells(each)[column] for column in columns] for each in JOBS], **options)


JOBS = [
    job(number=110_000, name=LONG, step=1_234_567, steps=10_000_000, eta_seconds=400_000.0, owner=LONG),
    job(name=HOSTILE, owner=HOSTILE, state="recovering", waiting_for=HOSTILE * 3, next_try_at=None),
    job(state="queued", step=None, queue_position=3, waiting_for="4 GPU slots, 1 free; starts about 14:20" * 3),
]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_list_of_jobs_keeps_id_state_and_step_whole(width: int) -> None:
    head, *rows = printed(width, jobs_table(job_tables._PS_COLUMNS, cut=job_tables._PS_CUT, drop=job_tables._PS_DROP))
    assert len(rows) == len(JOBS)
    assert all(Text(row).cell_len <= width for row in rows)
    assert {"#", "ID", "STATE", "STEP"} <= set(head.split())
    for row, state, step in zip(
        rows, ("running", "recovering", "queued"), ("1234567/10000000", "120/400", "-"), strict=True
    ):
        assert {"abcdefghij", state, step} <= set(row.split())
    assert "…" in rows[0]
    assert ("OWNER" in head) == (width == 200)


def test_a_job_in_top_keeps_its_state_and_step_at_80_columns() -> None:
    head, *rows = printed(80, jobs_table(top_views._JOB_COLUMNS, cut=top_views._CUT, drop=top_views._DROP))
    assert {"STATE", "STEP", "DONE", "STATUS"} <= set(head.split())
    assert "recovering" in rows[1]


def test_nothing_is_cut_where_there_is_room() -> None:
    rows = printed(10_000, jobs_table(job_tables._PS_COLUMNS, cut=job_tables._PS_CUT, drop=job_tables._PS_DROP))
    assert LONG.strip() in rows[1]
    assert not any("…" in row for row in rows)


def test_columns_that_find_no_room_are_named() -> None:
    table = Table(("lr", "accuracy", "loss of all ranks"), [["0.1", "0.97", "1.0"]])
    assert printed(20, table) == ["lr   accuracy", "0.1  0.97", "not shown, for lack…"]
    assert printed(60, table)[-1] == "0.1  0.97      1.0"


def test_a_reason_continues_on_the_next_line_in_its_column() -> None:
    table = Table(
        ("DEVICE", "REASON"), [["cuda:0", "too many errors of its memory"]], cut={"REASON": 10}, wrap="REASON"
    )
    assert printed(24, table) == ["DEVICE  REASON", "cuda:0  too many errors", "        of its memory"]


def test_the_remaining_width_is_given_to_the_columns_that_need_it() -> None:
    natural = {"#": 3, "NAME": 12, "STATUS": 200}
    assert fit(natural, {"NAME": 8, "STATUS": 12}, 80) == {"#": 3, "NAME": 12, "STATUS": 61}
    assert fit(natural, {"NAME": 8, "STATUS": 12}, 10) == {"#": 3, "NAME": 8, "STATUS": 12}
    assert fit({}, {}, 80) == {}
