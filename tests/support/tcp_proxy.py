"""A plain TCP proxy: it balances connections over several servers, and can be cut and joined."""

import contextlib
import itertools
import select
import socket
import threading
from collections.abc import Sequence
from typing import Self

Target = tuple[str, int] | str  # host and port, or the path of a Unix socket


class TcpProxy:
    """Forwards each connection to the next target that accepts it.

    While it is stalled, bytes stay where they are and new connections are accepted but not
    forwarded, as if packets were lost. A cut closes all connections.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = itertools.cycle(targets)
        self._target_count = len(targets)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listening.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._closing = False
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._flows.set()
        self._listening.close()
        self.cut()

    def stall(self) -> None:
        """Forward nothing until `flow`."""
        self._flows.clear()

    def flow(self) -> None:
        """Forward again."""
        self._flows.set()

    def cut(self) -> None:
        """Close all connections; new ones are accepted."""
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _connect(self) -> socket.socket | None:
        for _ in range(self._target_count):
            target = next(self._targets)
            with contextlib.suppress(OSError):
                if isinstance(target, str):
                    connection = socket.socket(socket.AF_UNIX)
                    connection.connect(target)
                    return connection
                return socket.create_connection(target, 5.0)
        return None

    def _serve(self, client: socket.socket) -> None:
        self._flows.wait()
        server = self._connect()
        with client:
            if server is None:
                return
            with server:
                pair = (client, server)
                self._sockets.update(pair)
                try:
                    self._forward(*pair)
                finally:
                    self._sockets.difference_update(pair)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        with contextlib.suppress(OSError):
            for each in other:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                ready, _, _ = select.select([client, server], [], [])
                self._flows.wait()
                for each in ready:
                    data = each.recv(1 << 16)
                    if not data:
                        return
                    other[each].sendall(data)
