"""``Retention``: deletions, the use of the disk and pruning, as a server holds them."""

from dataclasses import dataclass
from typing import Self

from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings
from rekindle_service.retention.deletions import Deletions
from rekindle_service.retention.disk_usage import DiskUsage
from rekindle_service.retention.pruner import Pruner
from rekindle_service.retention.rules import Rules
from rekindle_service.store import Store


@dataclass(frozen=True, slots=True)
class Retention:
    """The deletions are the reconciler's, which starts and closes them."""

    deletions: Deletions
    usage: DiskUsage
    pruner: Pruner

    @classmethod
    def of(cls, home: Home, store: Store, deletions: Deletions, rules: Rules) -> Self:
        usage = DiskUsage(home, store)
        return cls(deletions, usage, Pruner(home, store, deletions, usage, rules))

    def start(self) -> None:
        self.usage.start()
        self.pruner.start()

    def close(self) -> None:
        self.pruner.close()
        self.usage.close()


def rules_of(settings: Settings) -> Rules:
    return Rules(
        jobs_days=settings.keep_jobs_days,
        snapshots_days=settings.keep_snapshots_days,
        logs_days=settings.keep_logs_days,
        events_days=settings.keep_events_days,
        audit_days=settings.keep_audit_days,
        bundles_days=settings.keep_bundles_days,
        owner_bytes=settings.owner_bytes,
        jobs_bytes=settings.jobs_bytes,
    )
