"""The totals of ``rekindle_service.store.totals`` made again from the rows, some of which were inserted at once."""

from collections import Counter as Tally

from sqlmodel import Session, col, delete, func, select

from rekindle_service.store import totals
from rekindle_service.store.tables import Counter, Job


def recount(session: Session) -> None:
    session.execute(delete(Counter).where(col(Counter.name).startswith(totals._PREFIX)))
    values: Tally[str] = Tally()
    for name, count in session.exec(select(totals._CLASS, func.count()).group_by("class")):
        values[totals._ENDINGS + str(name)] += count if name is not None else 0
    columns = [getattr(Job, name) for name in totals._JOB_COLUMNS]
    for row in session.exec(select(*columns).execution_options(yield_per=10_000)):
        values.update(totals._share_of_job(row._mapping))
    totals._add(session.connection(), values)
