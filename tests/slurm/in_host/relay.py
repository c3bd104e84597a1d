"""``python relay.py DEVICE TAP LOST_FROM LOST_TO DELAY``: carry the packets of a host, late and with losses.

``DEVICE`` is this end of the host's link, ``TAP`` a device that is made, for the bridge. ARP gets through, as where the
loss is beyond a router.
"""

import fcntl
import heapq
import os
import random
import select
import socket
import struct
import sys
import time

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x400454CA, 0x0002, 0x1000, 0x4000
_SOL_PACKET, _PACKET_VNET_HDR, _ETH_P_ALL = 263, 15, 3
_HEADER = 10  # bytes of struct virtio_net_hdr: which checksum is still to be made, and how a large packet is cut
_ARP = b"\x08\x06"
_LARGEST = 1 << 17


def main(device: str, tap: str, lost_from: float, lost_to: float, delay: float) -> None:
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    link.bind((device, _ETH_P_ALL))
    bridge = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(bridge, _TUNSETIFF, struct.pack("16sH22x", tap.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
    late: list[tuple[float, int, bool, bytes]] = []  # when it is due, its number, whether it is for the host
    number = 0
    while True:
        ready, _, _ = select.select([link, bridge], [], [], max(late[0][0] - time.monotonic(), 0) if late else None)
        for source in ready:
            number += 1
            to_host = source == bridge
            if to_host:
                frame = os.read(bridge, _LARGEST)
            else:
                frame, address = link.recvfrom(_LARGEST)
                if address[2] == socket.PACKET_OUTGOING:
                    continue
            if frame[_HEADER + 12 : _HEADER + 14] == _ARP or random.random() >= (lost_to if to_host else lost_from):
                heapq.heappush(late, (time.monotonic() + delay, number, to_host, frame))
        while late and late[0][0] <= time.monotonic():
            _, _, to_host, frame = heapq.heappop(late)
            try:
                link.send(frame) if to_host else os.write(bridge, frame)
            except OSError as error:  # the device is down just now
                print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
