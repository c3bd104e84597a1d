"""A process of another user that connects to the ports of a group of ranks, as gloo's peers do."""

INTRUDER = """
import encodings.idna, os, socket, struct, sys
os.setgroups([])
os.setresuid(*[int(sys.argv[1])] * 3)
held = []
for port in map(int, sys.argv[4:]):
    for number in range(4):
        held.append(socket.create_connection((sys.argv[2], port), source_address=(sys.argv[3], 0)))
        held[-1].sendall(struct.pack("<q", number))
print("connected", flush=True)
sys.stdin.read()
"""
"""For ``python -c``; its arguments: user id, address of the ranks, own address ("" for any), ports."""
