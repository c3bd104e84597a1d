"""One job: is somebody in charge of it, are its ranks alive and getting anywhere, could it go on from a snapshot?"""

from collections.abc import Sequence

from rekindle.contract.debug_socket import last_collective
from rekindle.contract.locks import lock_holder
from rekindle_service.cli import wording
from rekindle_service.cli.checks.finding import Finding, Level, ok, problem, warning
from rekindle_service.client import Client, Job, ProblemError, Rank, Snapshot
from rekindle_service.config.home import Home
from rekindle_service.sanitize import sanitize_line

_SILENT = 60.0  # seconds without a sign of life after which a rank is worth a look
_LEVELS = {"recovering": Level.WARNING, "failed": Level.PROBLEM}
_IN_CHARGE = ("starting", "running", "recovering")
_STOPPED = {"T": "stopped by a signal", "t": "stopped by a debugger"}


def examine(client: Client, job: Job, home: Home | None) -> list[Finding]:
    """``home`` is None where the server is on another machine: what only this machine can see is left out."""
    findings = [state(job)]
    if home is not None and job["state"] in _IN_CHARGE:
        findings.append(keeper(lock_holder(home.run_dir(job["id"]).keeper_lock)))
    ranks = client.ranks(job["id"]) if job["state"] in _IN_CHARGE else []
    findings += [judge_rank(rank) for rank in ranks]
    if home is not None and ranks:
        attempt = home.run_dir(job["id"]).attempt(job["attempt"])
        findings.append(collectives({rank["rank"]: last_collective(attempt.rank(rank["rank"])) for rank in ranks}))
    return [*findings, snapshots(client.snapshots(job["id"])["items"])]


def stacks(client: Client, job: Job) -> list[tuple[int, str]]:
    """The stacks of all ranks; for one that leaves none, the reason."""
    told = []
    for rank in client.ranks(job["id"]):
        try:
            told.append((rank["rank"], client.stack(job["id"], rank["rank"])))
        except ProblemError as error:
            told.append((rank["rank"], str(error)))
    return told


def state(job: Job) -> Finding:
    detail = "; ".join(part for part in (job["state"], wording.steps(job), wording.situation(job)) if part)
    advice = {
        "failed": f"See `rekindle show {job['id']}`; when it is cured: rekindle resume {job['id']}",
        "recovering": f"Nothing: the next attempt follows by itself; `rekindle show {job['id']}` tells the story.",
    }
    return Finding("state", _LEVELS.get(job["state"], Level.OK), sanitize_line(detail), advice.get(job["state"], ""))


def keeper(pid: int | None) -> Finding:
    """``pid`` holds the keeper's lock of the run directory."""
    if pid is None:
        advice = "The server starts another within seconds; if this stays, see keeper.log in the run directory."
        return warning("keeper", "no live keeper holds the job's lock", advice)
    return ok("keeper", f"process {pid} holds the job's lock")


def judge_rank(rank: Rank) -> Finding:
    name, letter, age = f"rank {rank['rank']}", rank["process_state"], rank["heartbeat_age"]
    step = "" if rank["step"] is None else f", step {rank['step']}"
    sign = "" if age is None else f", last sign of life {wording.duration(age)} ago"
    detail = f"{sanitize_line(rank['state'])}{step}{sign}"
    if letter in _STOPPED:
        return problem(name, f"{_STOPPED[letter]}; {detail}", f"Wake it: kill -CONT {rank['pid']}")
    if letter == "D":
        return warning(
            name, f"waits in the kernel (D); {detail}", "A disk, a network disk or a driver does not answer."
        )
    if age is not None and age > _SILENT:
        return warning(name, detail, "Where does it stand? Add --stacks.")
    if rank["straggler"] is not None:
        waits = f"straggler: the others wait for it {rank['straggler']:.0%} of the time"
        return warning(name, f"{waits}; {detail}", "Has it a slower device, more data, or other work beside it?")
    return ok(name, detail)


def collectives(counts: dict[int, int | None]) -> Finding:
    """By torch's flight recorder: the last collective that each rank has begun, as far as it answers."""
    known = {rank: count for rank, count in counts.items() if count is not None}
    if not known:
        return ok("collectives", "torch's flight recorder does not answer in any rank")
    told = ", ".join(f"rank {rank}: {count}" for rank, count in sorted(known.items()))
    silent = [rank for rank in counts if rank not in known]
    if silent:
        detail = f"{told}; no answer from rank {', '.join(map(str, silent))}"
        return warning("collectives", detail, "A rank that does not answer is stopped or stuck in C code.")
    return ok("collectives", told)


def snapshots(found: Sequence[Snapshot]) -> Finding:
    """``found``: newest first."""
    good = next((snapshot for snapshot in found if snapshot["verified"]), None)
    if good is None:
        return warning("snapshot", "none that is whole", "After a failure the job begins anew, unless it saves itself.")
    detail = f"the newest whole one is of step {good['step']}, {wording.clock(good['created_at'])}"
    bad = [str(snapshot["step"]) for snapshot in found if not snapshot["verified"]]
    if bad:
        advice = "They are passed over; is the disk full or failing?"
        return warning("snapshot", f"{detail}; damaged: step {', '.join(bad)}", advice)
    return ok("snapshot", detail)
