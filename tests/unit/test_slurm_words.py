"""What squeue prints, and what people read of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle_service.launch.slurm.slurm_commands import (
    ListingError,
    SlurmJob,
    Stage,
    expand_hosts,
    job_name,
    parse_listing,
    sentence_of,
    slurm_environment,
)
from rekindle_service.launch.slurm.slurm_reasons import ending_words, reason_words, waiting_words

NAME = job_name("abcdefghij", 2)
LISTING = f"""\
17|{NAME}|RUNNING|n[1-2]|None|(null)
18|other|job|PENDING||Resources|
19|rekindle-klmnopqrst-1|PENDING||(Priority)|a | b
20|train|RUNNING|n3|None|
"""
REASONS = """
AccountingPolicy AccountNotAllowed BadConstraints BeginTime BurstBufferOperation BurstBufferResources
BurstBufferStageIn Cleaning Constraints DeadLine Dependency DependencyNeverSatisfied FedJobLock FrontEndDown
InactiveLimit InvalidAccount InvalidQOS JobArrayTaskLimit JobHeldAdmin JobHeldUser JobHoldMaxRequeue
JobLaunchFailure Licenses MaxMemPerLimit NodeDown NonZeroExitCode OutOfMemory PartitionConfig PartitionDown
PartitionInactive PartitionNodeLimit PartitionTimeLimit PowerNotAvail PowerReserved Priority Prolog QOSNotAllowed
QOSUsageThreshold RaisedSignal ReqNodeNotAvail Reservation ReservationDeleted ReservationInvalid Resources
SchedDefer SystemFailure TimeLimit
"""


def test_the_jobs_of_rekindle_are_read_and_others_skipped() -> None:
    jobs = parse_listing(LISTING)
    assert jobs[NAME] == SlurmJob(17, NAME, "RUNNING", ("n1", "n2"), "", "(null)")
    assert set(jobs) == {NAME, "rekindle-klmnopqrst-1"}
    (held,) = parse_listing(f"22|{NAME}|PENDING||launch_failed_requeued_held|").values()
    assert held.reason == "launch failed requeued held", "as earlier versions of Slurm write it"
    assert jobs["rekindle-klmnopqrst-1"].stage is Stage.WAITING
    later = parse_listing(f"21|{NAME}|PENDING|||\n20|{NAME}|FAILED|n1|None|")
    assert later[NAME].id == 21, "the later one of the same name"


@pytest.mark.parametrize("line", [f"x|{NAME}|RUNNING|n1|None|", f"1|{NAME}|RUNNING", f"1|{NAME}|RUN NING|n1|None|"])
def test_a_line_that_is_not_as_requested_is_no_answer(line: str) -> None:
    with pytest.raises(ListingError):
        parse_listing(line)


@given(st.text(max_size=300))
def test_whatever_is_printed_is_a_listing_or_an_error(text: str) -> None:
    try:
        parse_listing(text)
    except ListingError:
        return


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3,07]", ("n1", "n2", "n3", "n07")),
        ("gpu[09-11]-ib,login", ("gpu09-ib", "gpu10-ib", "gpu11-ib", "login")),
    ],
)
def test_a_list_of_nodes_is_written_out_up_to_a_limit(nodes: str, hosts: tuple[str, ...]) -> None:
    assert expand_hosts(nodes) == hosts
    assert len(expand_hosts("n[1-999999999]")) == 4096


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("PENDING", "Resources", "Slurm job 17 waits: for nodes that are in use now"),
        ("PENDING", "Priority", "Slurm job 17 waits: jobs of higher priority come first"),
        ("PENDING", "", "Slurm job 17 waits: Slurm has not looked at it yet"),
        ("PENDING", "JobHeldUser", "Slurm job 17 waits: it is held in Slurm: scontrol release 17 lets it start"),
        ("PENDING", "BeginTime", "Slurm job 17 waits: for the time before which Slurm does not start it"),
        ("SUSPENDED", "", "Slurm job 17 does not run: Slurm has suspended it"),
        ("CONFIGURING", "", "Slurm job 17 waits: its nodes are being prepared"),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-2]",
         "Slurm job 17 waits: for nodes that are down, drained or reserved (n[1-2])"),
        ("PENDING", "QOSMaxJobsPerUserLimit",
         "Slurm job 17 waits: the jobs of its user in its quality of service have reached a limit: "
         "jobs at a time (QOSMaxJobsPerUserLimit)"),
        ("PENDING", "AssocGrpCpuLimit",
         "Slurm job 17 waits: the jobs of its account have reached a limit: processors (AssocGrpCpuLimit)"),
        ("PENDING", "QOSGrpGRES",
         "Slurm job 17 waits: the jobs of its quality of service have reached a limit: GPUs (QOSGrpGRES)"),
        ("PENDING", "(ReqNodeNotAvail, UnavailableNodes:n[1-2],n3)",
         "Slurm job 17 waits: for nodes that are down, drained or reserved (n[1-2],n3)"),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:",
         "Slurm job 17 waits: for nodes that are down, drained or reserved"),
        ("PENDING", "ReqNodeNotAvail, Reserved for maintenance",
         "Slurm job 17 waits: for nodes that are down, drained or reserved (Reserved for maintenance)"),
        ("PENDING", "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
         "Slurm job 17 waits: for nodes that are down, drained, or reserved for jobs of higher priority"),
        ("PENDING", "JobHoldMaxRequeue",
         "Slurm job 17 waits: Slurm has queued it again too often; it is held in Slurm: scontrol release 17 lets it "
         "start"),
        ("PENDING", "MaxGRESPerAccount",
         "Slurm job 17 waits: the jobs of its account in its quality of service have reached a limit: GPUs "
         "(MaxGRESPerAccount)"),
        ("PENDING", "AssocMaxMemPerNode",
         "Slurm job 17 waits: it requests more than its account allows on a node: memory (AssocMaxMemPerNode)"),
        ("PENDING", "QOSMaxLicensePerJob",
         "Slurm job 17 waits: it requests more than its quality of service allows a job: licences "
         "(QOSMaxLicensePerJob)"),
        ("PENDING", "QOSMinCpuNotSatisfied",
         "Slurm job 17 waits: it requests less than its quality of service requires: processors "
         "(QOSMinCpuNotSatisfied)"),
        ("PENDING", "AssociationTimeLimit",
         "Slurm job 17 waits: the jobs of its account have reached a limit: time (AssociationTimeLimit)"),
        ("PENDING", "Vacation", "Slurm job 17 waits: Slurm's reason is Vacation"),
        ("PENDING", "Vacation {1}", "Slurm job 17 waits: Slurm's reason is Vacation {1}"),
    ],
)  # fmt: skip
def test_a_waiting_job_says_why(state: str, reason: str, words: str) -> None:
    assert waiting_words(SlurmJob(17, NAME, state, reason=reason)) == words


def test_an_ended_job_says_how() -> None:
    assert ending_words(SlurmJob(17, NAME, "TIMEOUT")) == "Slurm job 17 has ended: its time limit in Slurm was reached"
    failed = SlurmJob(17, NAME, "FAILED", reason="JobLaunchFailure")
    assert ending_words(failed) == "Slurm job 17 has ended: Slurm could not start it on its node"
    assert SlurmJob(17, NAME, "INVENTED").stage is Stage.RUNNING
    ending = "Slurm is ending job 17: it stops what still runs on its nodes"
    assert ending_words(SlurmJob(17, NAME, "COMPLETING")) == ending


def test_every_reason_of_slurm_has_words() -> None:
    """The names are those of src/common/job_state_reason.c of Slurm, patterns written out."""
    tres = ["Billing", "BB", "Cpu", "Energy", "GRES", "License", "Mem", "Node", "Unknown"]
    limits = [f"{whose}{kind}" for whose in ("AssocGrp", "QOSGrp") for kind in (
        *tres, *(f"{each}{time}" for each in tres for time in ("Minutes", "RunMinutes")), "JobsLimit", "WallLimit",
        "CpuLimit", "CPUMinutesLimit", "MemLimit", "NodeLimit", "SubmitJobsLimit")]  # fmt: skip
    limits += [f"{whose}Max{each}{time}{per}" for whose in ("Assoc", "QOS") for each in tres
               for time in ("", "Minutes") for per in ("PerJob", "PerNode", "PerUser", "PerAccount")]  # fmt: skip
    limits += [f"Max{each}PerAccount" for each in (*tres, "Jobs", "SubmitJobs")] + [f"QOSMin{each}" for each in tres]
    limits += ["AssociationJobLimit", "AssociationResourceLimit", "AssociationTimeLimit", "QOSJobLimit", "QOSTimeLimit",
               "QOSResourceLimit", "AssocMaxJobsLimit", "AssocMaxSubmitJobLimit", "QOSMaxSubmitJobPerUserLimit",
               "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"]  # fmt: skip
    assert [each for each in (*limits, *REASONS.split()) if "Slurm's reason is" in reason_words(each)] == []


@pytest.mark.parametrize(
    ("stderr", "sentence"),
    [
        ("allocation failure: Invalid partition name specified\n", "Invalid partition name specified"),
        ("sbatch: error: Invalid --time specification\n", "Invalid --time specification"),
        ("sbatch: unrecognized option '--foo'\nTry \"sbatch --help\" for more information\n",
         "unrecognized option '--foo'"),
        ("sbatch: error: invalid partition specified: nope\nallocation failure: Invalid partition name specified\n",
         "invalid partition specified: nope; Invalid partition name specified"),
        ("", ""),
    ],
)  # fmt: skip
def test_slurm_is_quoted_without_the_name_of_the_command(stderr: str, sentence: str) -> None:
    assert sentence_of(stderr) == sentence


def test_no_variable_of_the_server_is_an_option_of_its_commands() -> None:
    given = {"SBATCH_PARTITION": "x", "SLURM_JOB_ID": "1", "SLURM_CONF": "/c", "PATH": "/bin", "SQUEUE_FORMAT": "%i"}
    kept = slurm_environment(given)
    assert kept == {"SLURM_CONF": "/c", "PATH": "/bin", "LC_ALL": "C"}
