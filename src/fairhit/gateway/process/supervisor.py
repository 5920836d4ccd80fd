"""Supervisor: the parent of a gateway that runs as several processes.

The parent forks the children, replaces those that end, and serves no requests. The children share a port
(SO_REUSEPORT: the kernel spreads connections over them), the settings, one isolation secret, and the ledger
(`sharing`). The parent relays changes that an operator makes at one child (`/workers`, `/scheduler`) to all.
"""

import logging
import os
import secrets
import selectors
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import orjson

from fairhit.errors import ConfigError
from fairhit.gateway.process.sharing.ledger_stores import SharedMemory
from fairhit.gateway.process.systemd import SystemdNotifier
from fairhit.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)

# A child that ends sooner is replaced after a delay, which doubles each time up to the limit.
_STEADY_S = 10.0
_MAX_DELAY_S = 30.0
# On top of the time that the settings allow for shutdown; then a child is killed.
_GRACE_S = 10.0
# Subjects of operators' changes whose last change is sent to a child that starts later.
_MAX_CHANGES = 10_000
_MAX_MESSAGE = 65536
# Messages from a child to the parent, besides changes.
READY, ALIVE = b"ready", b"alive"
ENDING = b"ending "  # followed by the seconds that the shutdown may take
FAILED = b"failed "  # to start, followed by the reason
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class OperatorChange(NamedTuple):
    """A change by an operator; the last change of each subject is in force."""

    maker: int  # process id of the child that received it
    subject: str  # the engine's URL; empty: the scheduler
    method: str  # empty: withdrawn, because reloaded settings are newer
    target: str
    body: str

    def encode(self) -> bytes:
        """Serialise as one message."""
        return orjson.dumps(list(self))

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Parse the output of `encode`."""
        return cls(*orjson.loads(message))


class ChildContext(NamedTuple):
    """Start parameters of one child."""

    number: int  # from 0
    channel: socket.socket  # to the parent
    memory: int  # descriptor of the shared ledger's file
    settings: GatewaySettings
    is_replacement: bool
    alive_s: float  # interval of ALIVE messages; 0: none

    def own(self, settings: GatewaySettings) -> GatewaySettings:
        """Reloaded `settings` with the values that are fixed for this child."""
        shared = {"port": self.settings.port, "isolation_secret": self.settings.isolation_secret}
        return settings.replaced(**shared, prometheus_port=self.settings.prometheus_port)


@dataclass(slots=True)
class _Child:
    """State of a child in the parent."""

    number: int
    pid: int = 0  # 0: none runs
    channel: socket.socket | None = None
    started: float = 0.0
    last_message: float = 0.0
    is_ready: bool = False
    unsent: deque[bytes] = field(default_factory=deque)  # until the channel takes them
    due: float = 0.0  # when to start it
    delay_s: float = 0.0  # before that, since the last one ended
    fault: str = ""  # why it could not start


@dataclass
class Supervisor:
    """Starts and supervises the children; `run` returns in the parent and in each child."""

    settings: GatewaySettings
    notifier: SystemdNotifier
    _children: list[_Child] = field(default_factory=list)
    _changes: dict[str, bytes] = field(default_factory=dict)  # last one by subject, oldest first
    _stopped: float | None = None  # when a shutdown began
    _shutdown_s: float = 0.0
    _status: int = 0
    _fault: str = ""  # why the first child that failed to start did
    _was_ready: bool = False  # all children at once
    _reloaded: float = 0.0  # when SIGHUP last arrived

    def run(self) -> int | ChildContext:
        """In the parent: the exit status, after shutdown or if a child cannot start. In a child: its
        parameters, at once. Raises ConfigError.
        """
        self._reserved = _reserve(self.settings)
        secret = self.settings.isolation_secret
        if self.settings.isolate_prefixes and secret is None:
            secret = secrets.token_hex(32)
        self.settings = self.settings.replaced(
            port=self._reserved.getsockname()[1], isolation_secret=secret
        )
        self._allow(self.settings.longest_shutdown_s())
        self._memory = SharedMemory.create()
        self._selector = selectors.DefaultSelector()
        self._wakeup, signalled = socket.socketpair()
        for end in (self._wakeup, signalled):
            end.setblocking(False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)  # the number is read from the wakeup socket
        signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._children = [_Child(number) for number in range(self.settings.processes)]
        while any(child.pid or self._stopped is None for child in self._children):
            for child in self._children:
                if not child.pid and self._stopped is None and child.due <= time.monotonic():
                    context = self._start(child)
                    if context is not None:
                        return context
            self._wait()
        if self._fault:
            raise ConfigError(self._fault)
        return self._status

    def _start(self, child: _Child) -> ChildContext | None:
        """Fork; in the child its parameters, in the parent None."""
        is_replacement = child.started > 0
        child.started = child.last_message = time.monotonic()
        ends: tuple[socket.socket, ...] = ()
        try:
            ours, theirs = ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
        except OSError as error:  # a limit on processes or descriptors
            for end in ends:
                end.close()
            self._start_later(child, f"no process can be started ({error.strerror})")
            return None
        if not pid:
            self._release_parent(ours)
            settings, port = self.settings, self.settings.prometheus_port
            if port:
                settings = settings.replaced(prometheus_port=port + child.number)
            alive_s = self.notifier.watchdog_s / 2
            memory = self._memory.descriptor
            return ChildContext(child.number, theirs, memory, settings, is_replacement, alive_s)
        theirs.close()
        ours.setblocking(False)
        child.pid, child.channel, child.is_ready, child.fault = pid, ours, False, ""
        child.unsent.clear()
        self._selector.register(ours, selectors.EVENT_READ, child)
        return None

    def _release_parent(self, *ends: socket.socket) -> None:
        """In a new child: reset the signal handlers and close what belongs to the parent."""
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the child can reload its settings
        self._selector.close()
        for end in (*ends, self._wakeup, self._reserved, *[c.channel for c in self._children]):
            if end is not None:
                end.close()

    def _wait(self) -> None:
        """Handle the next events; return at least four times per watchdog interval."""
        now = time.monotonic()
        ends = [child.due for child in self._children if not child.pid and self._stopped is None]
        if self._stopped is not None:
            ends.append(self._stopped + self._shutdown_s)
        pause = min([1.0, *[max(0.0, end - now) for end in ends]])
        if self.notifier.watchdog_s:
            pause = min(pause, self.notifier.watchdog_s / 4)
        for key, events in self._selector.select(pause):
            if key.data is None:
                for number in self._wakeup.recv(64):
                    self._on_signal(number)
                continue
            if events & selectors.EVENT_READ:
                self._receive(key.data)
            if events & selectors.EVENT_WRITE:
                self._send(key.data)
        self._check_children(time.monotonic())

    def _on_signal(self, number: int) -> None:
        if number in {signal.SIGTERM, signal.SIGINT}:
            self._stop()
        elif number == signal.SIGHUP:
            self.notifier.reloading()
            self._reloaded = time.monotonic()
            for child in self._children:
                if child.is_ready:  # the others get the signal once they are
                    self._kill(signal.SIGHUP, child)
            self.notifier.ready()
        elif number == signal.SIGCHLD:
            for child in self._children:
                self._reap(child)

    def _receive(self, child: _Child) -> bool:
        """Handle one message of a child; False if there was none."""
        if child.channel is None:  # closed by SIGCHLD, handled just before
            return False
        try:
            message = child.channel.recv(_MAX_MESSAGE)
        except BlockingIOError:
            return False
        except ConnectionError:
            message = b""
        child.last_message = time.monotonic()
        if not message:  # the child is ending; SIGCHLD follows
            self._selector.unregister(child.channel)
            child.channel.close()
            child.channel = None
        elif message == READY:
            child.is_ready = True
            if child.started < self._reloaded:
                self._kill(signal.SIGHUP, child)
            self._on_ready(child)
        elif message.startswith(ENDING):
            self._allow(float(message.removeprefix(ENDING)))
        elif message.startswith(FAILED):
            child.fault = message.removeprefix(FAILED).decode(errors="replace")
        elif message != ALIVE:
            self._relay(message)
        return True

    def _relay(self, message: bytes) -> None:
        """Send an operator's change to all children, its maker included: the parent defines the order."""
        change = OperatorChange.decode(message)
        self._changes.pop(change.subject, None)
        if not change.method:  # withdrawn
            return
        if len(self._changes) == _MAX_CHANGES:
            del self._changes[next(iter(self._changes))]
        self._changes[change.subject] = message
        for child in self._children:
            if child.is_ready:
                self._send(child, message)

    def _send(self, child: _Child, *messages: bytes) -> None:
        """Queue `messages`, and write what the channel takes. A replacement gets what was not read."""
        child.unsent.extend(messages)
        if child.channel is None:
            return
        try:
            while child.unsent:
                child.channel.send(child.unsent[0])
                child.unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:  # the child is ending
            child.unsent.clear()
        writing = selectors.EVENT_WRITE if child.unsent else 0
        self._selector.modify(child.channel, selectors.EVENT_READ | writing, child)

    def _on_ready(self, child: _Child) -> None:
        self._send(child, *self._changes.values())
        if not self._was_ready and all(one.is_ready for one in self._children):
            self._was_ready = True
            _log.info("%d processes serve port %d", len(self._children), self.settings.port)
            self.notifier.ready()

    def _reap(self, child: _Child) -> None:
        """Collect the exit status of a child that has ended, and schedule its replacement."""
        if not child.pid or not os.waitpid(child.pid, os.WNOHANG)[0]:
            return
        pid, child.pid = child.pid, 0
        while self._receive(child):  # its last messages
            pass
        child.is_ready = False
        if child.channel is not None:
            self._selector.unregister(child.channel)
            child.channel.close()
            child.channel = None
        if self._stopped is None:
            reason = f"process {pid} ended"
            self._start_later(child, f"{reason}: {child.fault}" if child.fault else reason)

    def _start_later(self, child: _Child, reason: str) -> None:
        """Schedule a replacement; before all children were ready once, give up instead."""
        if not self._was_ready:
            if child.fault:
                self._fault = child.fault
            else:
                _log.error("%s before all processes served: all are stopped", reason)
            self._status = 2
            self._stop()
            return
        now = time.monotonic()
        is_steady = now - child.started > _STEADY_S
        child.delay_s = 0.0 if is_steady else min(_MAX_DELAY_S, 2 * child.delay_s + 1)
        child.due = now + child.delay_s
        _log.error("%s; another is started in %.0f s", reason, child.delay_s)

    def _check_children(self, now: float) -> None:
        """Kill children that hang or exceed the shutdown time; notify systemd."""
        if self._stopped is not None:
            if now >= self._stopped + self._shutdown_s:
                self._kill(signal.SIGKILL, *self._children)
            return
        limit_s = self.notifier.watchdog_s
        for child in self._children if limit_s else ():
            if child.pid and child.is_ready and now - child.last_message > limit_s:
                _log.error("process %d does not respond: it is killed", child.pid)
                os.kill(child.pid, signal.SIGKILL)
                child.is_ready = False
        self.notifier.alive()

    def _stop(self) -> None:
        if self._stopped is None:
            self.notifier.stopping()
            self._stopped = time.monotonic()
        self._kill(signal.SIGTERM, *self._children)

    def _allow(self, shutdown_s: float) -> None:
        """Raise the shutdown time: reloaded settings may be longer, and a child that hangs cannot report."""
        self._shutdown_s = max(self._shutdown_s, shutdown_s + _GRACE_S)

    def _kill(self, number: signal.Signals, *children: _Child) -> None:
        for child in children:
            if child.pid:
                os.kill(child.pid, number)


def _reserve(settings: GatewaySettings) -> socket.socket:
    """Bind the port until the parent ends, without listening. Raises ConfigError if it is in use."""
    host, port = settings.host, settings.port
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Without SO_REUSEPORT the bind fails if any process listens, another gateway of ours included.
        with socket.socket(family, kind) as trying:
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trying.bind(address)
        reserved = socket.socket(family, kind)
        # Lingering connections of an earlier gateway do not prevent a start.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError as error:
        raise ConfigError(f"--port: cannot listen on {host}:{port}: {error.strerror}") from None
    return reserved
