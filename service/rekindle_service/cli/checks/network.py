"""What ranks and server need to find each other on this machine."""

import socket

from rekindle_service.cli.checks.finding import Finding, ok, problem


def network() -> list[Finding]:
    return [loopback(), host_name()]


def loopback(host: str = "127.0.0.1") -> Finding:
    """The server, torchrun's store and the ranks all listen on free ports."""
    try:
        with socket.create_server((host, 0)) as listener:
            return ok("loopback", f"{host} takes listeners (port {listener.getsockname()[1]} was free)")
    except OSError as error:
        advice = "Bring the loopback interface up: ip link set lo up"
        return problem("loopback", f"nothing can listen on {host}: {error}", advice)


def host_name(name: str | None = None) -> Finding:
    """gloo looks its own host name up; where that fails, no process group comes together."""
    name = socket.gethostname() if name is None else name
    try:
        addresses = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None)})
    except (OSError, UnicodeError) as error:
        advice = f"Add a line to /etc/hosts: 127.0.1.1 {name}"
        return problem("host name", f"{name!r} does not resolve: {error}", advice)
    return ok("host name", f"{name} is {', '.join(addresses)}")
