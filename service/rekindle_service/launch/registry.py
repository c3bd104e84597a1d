"""The launchers that there are, and which of them a job has."""

from collections.abc import Iterator, Sequence

from rekindle.contract.job import JobSpec
from rekindle_service.launch.isolation.rights import SubmitRights
from rekindle_service.launch.launcher import Launcher, LauncherParts
from rekindle_service.launch.local.local_launcher import LocalLauncher
from rekindle_service.launch.slurm.slurm_launcher import SlurmLauncher

LAUNCHERS: Sequence[type[Launcher]] = (SlurmLauncher, LocalLauncher)
"""The first that claims a job has it."""


def launcher_of(spec: JobSpec) -> type[Launcher]:
    """The launcher of jobs with this spec, whose facts hold whether or not this server can use it."""
    return next(each for each in LAUNCHERS if each.claims(spec))


def takes_slots(spec: JobSpec) -> bool:
    """Whether the job holds devices of this machine while it runs."""
    return launcher_of(spec).takes_slots


class Launchers:
    """The launchers of one server."""

    def __init__(self, launchers: Sequence[Launcher], rights: SubmitRights) -> None:
        """``rights``: of the jobs that they launch, with which the files of a submission are read."""
        self._by_type = {type(each): each for each in launchers}
        self.rights = rights

    @classmethod
    def create(cls, parts: LauncherParts) -> "Launchers":
        """Raises OSError where the home cannot be written."""
        return cls([each.create(parts) for each in LAUNCHERS], SubmitRights(parts.isolation, parts.home))

    def of(self, spec: JobSpec) -> Launcher:
        """The launcher of jobs with this spec."""
        return self._by_type[launcher_of(spec)]

    def __iter__(self) -> Iterator[Launcher]:
        return iter(self._by_type.values())
