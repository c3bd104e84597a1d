"""One job: does a keeper supervise it, do its ranks make progress, could it resume from a snapshot?"""

from collections.abc import Sequence

from rekindle.contract.locks import lock_holder
from rekindle.contract.rank_traces import last_collective
from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.cli import formatting
from rekindle_service.cli.checks import Finding, ok, problem, warning
from rekindle_service.client import Checkpoint, Client, Job, ProblemError, Rank, Snapshot
from rekindle_service.config.home import Home
from rekindle_service.sanitize import sanitize_line

_STOPPED = {"T": "stopped by a signal", "t": "stopped by a debugger"}


def check_job(client: Client, job: Job, home: Home | None) -> list[Finding]:
    """``home`` is None where the server is on another machine: checks that need this machine are omitted."""
    findings = [state(job)]
    holds_slots = job["state"] in HOLDING_SLOTS
    if home is not None and holds_slots:
        findings.append(keeper(lock_holder(home.run_dir(job["id"]).keeper_lock)))
    ranks = client.ranks(job["id"]) if holds_slots else []
    findings += [check_rank(rank) for rank in ranks]
    if home is not None and ranks:
        attempt = home.run_dir(job["id"]).attempt(job["attempt"])
        findings.append(
            collectives({rank["rank"]: last_collective(attempt.rank(rank["rank"]), on_gpu=True) for rank in ranks})
        )
    return [*findings, snapshots(client.snapshots(job["id"])["items"], job["checkpoints"])]


def stacks(client: Client, job: Job) -> list[tuple[int, str]]:
    """The stacks of all ranks, or the reason why a rank has none."""
    found = []
    for rank in client.ranks(job["id"]):
        try:
            found.append((rank["rank"], client.stack(job["id"], rank["rank"])))
        except ProblemError as error:
            found.append((rank["rank"], str(error)))
    return found


def state(job: Job) -> Finding:
    detail = sanitize_line(formatting.join([job["state"], formatting.progress(job), formatting.status_line(job)]))
    match job["state"]:
        case "failed":
            advice = f"See `rekindle show {job['id']}`; once it is fixed: rekindle resume {job['id']}"
            return problem("state", detail, advice)
        case "recovering":
            advice = f"Nothing: the next attempt starts by itself; `rekindle show {job['id']}` lists all attempts."
            return warning("state", detail, advice)
    return ok("state", detail)


def keeper(pid: int | None) -> Finding:
    """``pid`` holds the keeper's lock of the run directory."""
    if pid is None:
        advice = "The server starts another within seconds; if this persists, see keeper.log in the run directory."
        return warning("keeper", "no live keeper holds the job's lock", advice)
    return ok("keeper", f"process {pid} holds the job's lock")


def check_rank(rank: Rank) -> Finding:
    name, letter, age = f"rank {rank['rank']}", rank["process_state"], rank["heartbeat_age"]
    step = "" if rank["step"] is None else f", step {rank['step']}"
    heartbeat = "" if age is None else f", last heartbeat {formatting.duration(age)} ago"
    silence = formatting.silence(rank)
    process = "" if rank["pid"] is None else f", process {rank['pid']}"
    detail = f"{sanitize_line(rank['state'])}{process}{step}{heartbeat}{silence and ', '}{silence}"
    if letter in _STOPPED:
        return problem(name, f"{_STOPPED[letter]}; {detail}", f"Continue it: kill -CONT {rank['pid']}")
    if letter == "D":
        advice = "A disk, a network disk or a driver does not answer."
        return warning(name, f"waits in the kernel (D); {detail}", advice)
    if silence or formatting.is_late(rank):
        return warning(name, detail, "Pass --stacks to see what it is doing.")
    if rank["straggler"] is not None:
        waits = f"straggler: the others wait for it {rank['straggler']:.0%} of the time"
        advice = "Does it have a slower device, more data, or other load on its CPU or GPU?"
        return warning(name, f"{waits}; {detail}", advice)
    return ok(name, detail)


def collectives(counts: dict[int, int | None]) -> Finding:
    """The last collective that each rank has enqueued, by torch's flight recorder, for the ranks that answer."""
    known = {rank: count for rank, count in counts.items() if count is not None}
    if not known:
        return ok("collectives", "torch's flight recorder does not answer in any rank")
    listed = ", ".join(f"rank {rank}: {count}" for rank, count in sorted(known.items()))
    silent = [rank for rank in counts if rank not in known]
    if silent:
        detail = f"{listed}; no answer from rank {', '.join(map(str, silent))}"
        return warning("collectives", detail, "A rank that does not answer is stopped or stuck in C code.")
    return ok("collectives", listed)


def snapshots(found: Sequence[Snapshot], checkpoints: Sequence[Checkpoint] = ()) -> Finding:
    """What the job resumes from; ``found`` and the script's own ``checkpoints`` come latest first."""
    good = next((snapshot for snapshot in found if snapshot["verified"]), None)
    own = next((each for each in checkpoints if each["complete"] and each["attempt"]), None)
    if good is None and own is not None:
        return ok("snapshot", f"none; the script's own checkpoint is {formatting.checkpoint(own)}")
    if good is None:
        advice = "After a failure the job restarts from the beginning, unless its script loads a checkpoint of its own."
        return warning("snapshot", "no verified snapshot", advice)
    detail = f"the latest verified one is of step {good['step']}, {formatting.clock(good['created_at'])}"
    bad = [str(snapshot["step"]) for snapshot in found if not snapshot["verified"]]
    if bad:
        advice = "They are skipped; is the disk full or failing?"
        return warning("snapshot", f"{detail}; damaged: step {', '.join(bad)}", advice)
    return ok("snapshot", detail)
