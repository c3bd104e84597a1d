"""Hosts on one machine: each has its own network, processes, host name, clock, boot id, /tmp and /dev/shm.

All other files are shared, as are some directories of /tmp. A host is a set of namespaces below one process, its init.
What makes one host unwell (another view of a directory, another clock, a lossy link) is in its own namespaces too.
Where that process is killed, all of the host is gone, as after a power cut; it dies with the process of the tests.
Hosts hang at one bridge, on which the machine itself has an address too. Needs root.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from e2e.waiting import until

# Dies with the process of the tests, whatever ends that.
_TIED = ("setpriv", "--pdeathsig", "KILL")
_TMP = "/tmp"  # noqa: S108  # of each host its own
_SPACES = ("--net", "--uts", "--ipc", "--mount", "--pid", "--time")
_INIT = """
set -e
hostname "$NAME"
mount --bind "$HOSTS" /etc/hosts
mount --bind "$BOOT_ID" /proc/sys/kernel/random/boot_id
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p "$FOLDER/tmp"
mount -t tmpfs -o mode=1777 tmpfs "$FOLDER/tmp"
for path in $SHARED; do
  mkdir -p "$FOLDER$path"
  mount --rbind "$path" "$FOLDER$path"
done
mount --rbind "$FOLDER/tmp" /tmp
ip link set lo up
echo up
trap : TERM INT HUP
set +e
while :; do sleep 100000 & wait; done
"""
# As large as what is in it.
_FILL = 'mount -o remount,size=$(($(df --block-size=1 --output=used "$1" | tail -n 1) + 4096)) "$1"'
_IN_HOST = Path(__file__).parent / "in_host"
_PACKAGES = Path(sysconfig.get_path("purelib"))
POWER_CUT, CRASH, LINK, DROP, HANG = "power", "crash", "link", "drop", "hang"


@dataclass(frozen=True)
class Bridge:
    """The network of the hosts: ``tag`` names its devices, ``network`` has the first three numbers of its addresses."""

    tag: str
    network: str

    @property
    def name(self) -> str:
        return f"{self.tag}br"

    def address(self, number: int) -> str:
        return f"{self.network}.{number}"

    def up(self) -> None:
        """Sweep what a killed process of tests has left of this name, then make it."""
        self.down()
        run("ip", "link", "add", self.name, "type", "bridge")
        run("ip", "addr", "add", f"{self.address(254)}/24", "dev", self.name)
        run("ip", "link", "set", self.name, "up")

    def down(self) -> None:
        for device in Path("/sys/class/net").glob(f"{self.tag}*"):
            run("ip", "link", "del", device.name, check=False)


class Host:
    """One host, off at first. ``number`` ends its address; its clock is ``number`` days ahead of the machine's."""

    def __init__(self, bridge: Bridge, number: int, name: str, directory: Path, shared: Sequence[Path]) -> None:
        """``directory``: its files, made if need be; ``shared``: existing directories, only those in /tmp count.

        ``directory`` is to be in one of those. The file etc-hosts next to it is what the host has as /etc/hosts.
        """
        self.name, self.address = name, bridge.address(number)
        self._bridge, self._number, self._directory, self._shared = bridge, number, directory, shared
        self._device = f"{bridge.tag}v{number}"
        self._unshare: subprocess.Popen[str] | None = None
        self._init = 0
        self._entered: list[subprocess.Popen[bytes]] = []
        self._relay: subprocess.Popen[bytes] | None = None
        self._cures: list[tuple[str, ...]] = []  # commands that undo what makes it unwell, latest last

    @property
    def on(self) -> bool:
        return self._unshare is not None

    def boot(self) -> None:
        """Switch it on: nothing runs on it, and it has a boot id that no host had before."""
        assert not self.on, f"{self.name} is on already"
        self._directory.mkdir(parents=True, exist_ok=True)
        boot_id = self._directory / "boot_id"
        boot_id.write_text(f"{uuid4()}\n")
        own = {"NAME": self.name, "FOLDER": str(self._directory), "BOOT_ID": str(boot_id)}
        own["HOSTS"] = str(self._directory.parent / "etc-hosts")
        own["SHARED"] = " ".join(str(path) for path in self._shared if path.is_relative_to(_TMP))
        ahead = str(self._number * 86_400)
        flags = (*_SPACES, "--fork", "--kill-child", "--mount-proc", "--monotonic", ahead, "--boottime", ahead)
        with (self._directory / "init.log").open("ab") as log:
            self._unshare = subprocess.Popen(
                [*_TIED, "unshare", *flags, "bash", "-c", _INIT], env={**os.environ, **own}, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        assert self._unshare.stdout is not None
        assert self._unshare.stdout.readline() == "up\n", (self._directory / "init.log").read_text()
        self._init = child_of(self._unshare.pid)
        self._cures = []
        self._plug_in()

    def _plug_in(self) -> None:
        run("ip", "link", "del", self._device, check=False)
        peer = ("peer", "name", "eth0", "address", f"02:52:4b:00:00:{self._number:02x}", "netns", str(self._init))
        run("ip", "link", "add", self._device, "type", "veth", *peer)
        run("ip", "link", "set", self._device, "master", self._bridge.name, "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    # --- processes on it

    def command(self, *command: str) -> list[str]:
        """The words that run ``command`` on this host."""
        assert self.on, f"{self.name} is off"
        return ["nsenter", "--target", str(self._init), *_SPACES, "--", *command]

    def run(self, *command: str, check: bool = True) -> str:
        """What ``command`` prints."""
        return run(*self.command(*command), check=check)

    def start(self, *command: str, log: Path, environment: dict[str, str] | None = None) -> int:
        """Start ``command`` in the background; its pid as this machine counts."""
        with log.open("ab") as output:
            entering = subprocess.Popen(
                [*_TIED, *self.command(*command)], env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._entered.append(entering)
        return child_of(entering.pid)

    def processes(self) -> dict[int, int]:
        """Pids on this machine of the processes on the host, by pid on the host."""
        mine = (Path(f"/proc/{self._init}/ns/pid")).readlink() if self.on else None
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and (entry / "ns/pid").readlink() == mine:
                    found[_own_pid(entry)] = int(entry.name)
            except OSError:  # it has just ended
                continue
        return found

    def signal(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Signal a process by its pid on the host."""
        os.kill(self.processes()[pid], number)

    # --- what happens to it

    def fail(self, mode: str) -> None:
        """One of power, crash, link, drop and hang.

        ``power``: it vanishes without a packet. ``crash``: its processes die, and the kernel closes their connections.
        ``link``: no carrier. ``drop``: each packet is lost. ``hang``: no process runs, though the kernel does.
        """
        if mode in (POWER_CUT, DROP):
            run("ip", "link", "set", self._device, "nomaster")
        if mode in (POWER_CUT, CRASH):
            self._kill_init()
        elif mode == LINK:
            run("ip", "link", "set", self._device, "down")
        elif mode == HANG:
            self.run("sh", "-c", "kill -STOP -1")
        elif mode != DROP:
            raise ValueError(f"unknown mode {mode!r}")

    def heal(self) -> bool:
        """Undo all that happened to it; whether it had to be switched on again, so that nothing runs on it."""
        self._end_relay()
        if not self.on:
            self.boot()
            return True
        while self._cures:
            self.run(*self._cures.pop())
        run("ip", "link", "set", self._device, "master", self._bridge.name, "up")
        self.run("sh", "-c", "kill -CONT -1", check=False)
        return False

    def switch_off(self) -> None:
        self._end_relay()
        if self.on:
            self._kill_init()
        run("ip", "link", "del", self._device, check=False)

    # --- what makes it unwell: the host runs, the others are well

    def make_read_only(self, path: Path) -> None:
        """No file of ``path`` can be opened for writing here; what is open already is written on."""
        self._cover(path, "--bind", str(path))
        self.run("mount", "-o", "remount,bind,ro", str(path))

    def hide(self, path: Path) -> None:
        """``path`` is an empty directory here: the place of a file system that is not mounted."""
        self._cover(path, "-t", "tmpfs", "-o", "ro,size=4k,mode=555", "tmpfs")

    def make_stale(self, path: Path) -> None:
        """What others write into ``path`` is not seen here from now on, nor by them what is written here."""
        copy = self._directory / f"copy-{uuid4()}"
        self.run("cp", "--archive", str(path), str(copy), check=False)  # a file may vanish meanwhile
        self._cover(path, "--bind", str(copy))

    def lack(self, package: str) -> None:
        """Nothing is left of ``package``, such as ``torch``, but its directory."""
        self.hide(_PACKAGES / package)

    def fill(self, path: str) -> None:
        """Nothing more fits into /tmp or /dev/shm."""
        self.run("sh", "-c", _FILL, "sh", path)
        self._cures.append(("mount", "-o", "remount,size=50%", path))

    def shift_clock(self, seconds: float) -> None:
        """Each Python process that starts here from now on has a time of day so much later; times of files are true."""
        self._begin_python("shifted_clock", seconds=seconds)

    def delay_renames(self, below: Path, seconds: float) -> None:
        """Each Python process that starts here renames to paths ``below`` this many seconds late, in order."""
        aside = below.parent / f"renamed-on-{self.name}"
        aside.mkdir()
        self._begin_python("late_renames", below=str(below), aside=str(aside))
        program = (sys.executable, "-S", str(_IN_HOST / "late_renames.py"), str(aside), str(seconds))
        self.start(*program, log=self._directory / "late_renames.log")

    def relay(self, *, lost_from: float = 0.0, lost_to: float = 0.0, delay: float = 0.0) -> None:
        """Lose these shares, 0 to 1, of the packets from and to it, and let each of the others be ``delay`` s late."""
        tap = f"{self._device}t"
        run("ip", "link", "set", self._device, "nomaster")
        words = (str(_IN_HOST / "relay.py"), self._device, tap, str(lost_from), str(lost_to), str(delay))
        self._relay = start_tied(sys.executable, "-S", *words, log=self._directory / "relay.log")
        until(Path("/sys/class/net", tap).exists, f"{tap} is there: {self._directory}/relay.log")
        run("ip", "link", "set", tap, "master", self._bridge.name, "up")

    def _end_relay(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
            self._relay = None

    def _cover(self, path: Path, *mount: str) -> None:
        self.run("mount", *mount, str(path))
        self._cures.append(("umount", "--lazy", str(path)))

    def _begin_python(self, module: str, **names: object) -> None:
        """Each interpreter that starts here calls ``begin`` of this module of in_host first, with ``names``."""
        pth = min(_PACKAGES.glob("*.pth"))  # one that is there can be covered
        own = self._directory / f"{uuid4()}.pth"
        begin = f"(sys.path.append({str(_IN_HOST)!r}), __import__({module!r}).begin(**{names!r}))"
        line = f"import sys; {module!r} in sys.modules or {begin}"  # those of a venv are read twice
        own.write_text(f"{self.run('cat', str(pth))}\n{line}\n")
        self._cover(pth, "--bind", str(own))

    def _kill_init(self) -> None:
        assert self._unshare is not None
        unshare, self._unshare = self._unshare, None
        unshare.kill()
        unshare.wait()
        for entering in self._entered:  # else the host's init waits for those that a stopped nsenter does not reap
            entering.kill()
            entering.wait()
        self._entered = []
        assert unshare.stdout is not None
        unshare.stdout.read()  # ends with the last process on the host
        unshare.stdout.close()


def child_of(pid: int) -> int:
    """The one child of ``pid``, once it has one."""
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        os.sched_yield()


def run(*command: str, check: bool = True, environment: Mapping[str, str] | None = None) -> str:
    """What ``command`` prints; fails with what it complains about. ``environment`` is added to that of this process."""
    own = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=own)
    assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def start_tied(*command: str, log: Path) -> subprocess.Popen[bytes]:
    """Start ``command`` on this machine; it dies with this process."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [*_TIED, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def why_no_hosts(commands: Sequence[str] = ("unshare", "nsenter", "setpriv", "ip")) -> str | None:
    """Why this machine can have no hosts; None if it can."""
    if os.geteuid() != 0:
        return "needs root, for namespaces"
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    probe = subprocess.run(["unshare", *_SPACES, "--fork", "--mount-proc", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        return f"namespaces are not available here: {probe.stderr.decode().strip()}"
    return None


def _own_pid(entry: Path) -> int:
    """The pid that a process has in its own namespace."""
    lines = (entry / "status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])
