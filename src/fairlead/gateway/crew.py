"""Several processes of one gateway: a parent starts them and passes on what it is told.

The parent forks them and waits; it serves nobody. They share a port (SO_REUSEPORT: the system spreads
connections over them), the settings, one isolation secret, and the account (`sharing`). What an operator
changes at one of them through `/workers` or `/scheduler` the parent tells the others.
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
from typing import NamedTuple

from fairlead.errors import ConfigError
from fairlead.gateway.changes import Change
from fairlead.gateway.notices import Notices
from fairlead.gateway.settings import GatewaySettings
from fairlead.gateway.sharing.stores import SharedMemory

_log = logging.getLogger(__name__)

# One that ends sooner has not served: the next is started after a wait that doubles.
_STEADY_S = 10.0
_MOST_WAIT_S = 30.0
# Beyond what the settings allow for finishing: then a process is killed.
_GRACE_S = 10.0
# Engines and the like, whose last change a process started later is told of.
_MOST_CHANGES = 10_000
_MESSAGE_LEN = 65536
# What a process tells its parent besides changes.
READY, ALIVE = b"ready", b"alive"
ENDING = b"ending "  # and how many seconds that may take
FAILED = b"failed "  # to start, and why
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Place(NamedTuple):
    """What the parent gives to one process: its number from 0, the way to the parent, the account's file."""

    number: int
    channel: socket.socket
    memory: int
    settings: GatewaySettings
    is_restarted: bool
    alive_s: float  # how often to say that it moves; 0: nobody asks

    def own(self, settings: GatewaySettings) -> GatewaySettings:
        """The settings as they are read, with what is this process's own. See `Crew`."""
        shared = {"port": self.settings.port, "isolation_secret": self.settings.isolation_secret}
        return settings.replaced(**shared, prometheus_port=self.settings.prometheus_port)


@dataclass(slots=True)
class _Member:
    """One process, as the parent knows it."""

    number: int
    pid: int = 0
    channel: socket.socket | None = None
    started: float = 0.0
    heard: float = 0.0
    is_ready: bool = False
    untold: deque[bytes] = field(default_factory=deque)  # until it has read what came before
    due: float = 0.0  # when to start it
    wait_s: float = 0.0  # before that, since the last one ended
    fault: str = ""  # why it could not start


@dataclass
class Crew:
    """`run` it: in the parent that is the exit status, in each process which one it is."""

    settings: GatewaySettings
    notices: Notices
    _members: list[_Member] = field(default_factory=list)
    _changes: dict[str, bytes] = field(default_factory=dict)  # the last one about each, in order
    _stopped: float | None = None  # when we were told to stop
    _patience_s: float = 0.0
    _status: int = 0
    _fault: str = ""  # why the first that could not start, could not
    _has_been_ready: bool = False
    _reloaded: float = 0.0  # when we were last told to read the settings again

    def run(self) -> int | Place:
        """Until told to stop, or until one of them cannot even start. Raises ConfigError."""
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
        self._told, telling = socket.socketpair()
        for end in (self._told, telling):
            end.setblocking(False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)  # the byte that is written is what we read
        signal.set_wakeup_fd(telling.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._told, selectors.EVENT_READ)
        self._members = [_Member(number) for number in range(self.settings.processes)]
        while any(member.pid or self._stopped is None for member in self._members):
            for member in self._members:
                if not member.pid and self._stopped is None and member.due <= time.monotonic():
                    place = self._start(member)
                    if place is not None:
                        return place
            self._wait()
        if self._fault:
            raise ConfigError(self._fault)
        return self._status

    def _start(self, member: _Member) -> Place | None:
        """In the new process its place; in the parent None."""
        is_restarted = member.started > 0
        member.started = member.heard = time.monotonic()
        ends: tuple[socket.socket, ...] = ()
        try:
            ours, theirs = ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
        except OSError as error:  # there may be as many processes or files as there may be
            for end in ends:
                end.close()
            self._start_later(member, f"no process can be started ({error.strerror})")
            return None
        if not pid:
            self._forget_parent(ours)
            settings, port = self.settings, self.settings.prometheus_port
            if port:
                settings = settings.replaced(prometheus_port=port + member.number)
            alive_s = self.notices.watchdog_s / 2
            memory = self._memory.descriptor
            return Place(member.number, theirs, memory, settings, is_restarted, alive_s)
        theirs.close()
        ours.setblocking(False)
        member.pid, member.channel, member.is_ready, member.fault = pid, ours, False, ""
        member.untold.clear()
        self._selector.register(ours, selectors.EVENT_READ, member)
        return None

    def _forget_parent(self, *ends: socket.socket) -> None:
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can read its settings again
        self._selector.close()
        for end in (*ends, self._told, self._reserved, *[m.channel for m in self._members]):
            if end is not None:
                end.close()

    def _wait(self) -> None:
        """For whatever happens next, at most half the time in which we must say that we are well."""
        now = time.monotonic()
        ends = [member.due for member in self._members if not member.pid and self._stopped is None]
        if self._stopped is not None:
            ends.append(self._stopped + self._patience_s)
        pause = min([1.0, *[max(0.0, end - now) for end in ends]])
        if self.notices.watchdog_s:
            pause = min(pause, self.notices.watchdog_s / 4)
        for key, events in self._selector.select(pause):
            if key.data is None:
                for number in self._told.recv(64):
                    self._signalled(number)
                continue
            if events & selectors.EVENT_READ:
                self._hear(key.data)
            if events & selectors.EVENT_WRITE:
                self._tell(key.data)
        self._look_after(time.monotonic())

    def _signalled(self, number: int) -> None:
        if number in {signal.SIGTERM, signal.SIGINT}:
            self._stop()
        elif number == signal.SIGHUP:
            self.notices.reloading()
            self._reloaded = time.monotonic()
            for member in self._members:
                if member.is_ready:  # the others are told when they are
                    self._pass_on(signal.SIGHUP, member)
            self.notices.ready()
        elif number == signal.SIGCHLD:
            for member in self._members:
                self._reap(member)

    def _hear(self, member: _Member) -> bool:
        """Whether there may be more to hear."""
        if member.channel is None:  # it ended, as SIGCHLD has just said
            return False
        try:
            message = member.channel.recv(_MESSAGE_LEN)
        except BlockingIOError:
            return False
        except ConnectionError:
            message = b""
        member.heard = time.monotonic()
        if not message:  # it is about to end: SIGCHLD says when
            self._selector.unregister(member.channel)
            member.channel.close()
            member.channel = None
        elif message == READY:
            member.is_ready = True
            if member.started < self._reloaded:
                self._pass_on(signal.SIGHUP, member)
            self._welcome(member)
        elif message.startswith(ENDING):
            self._allow(float(message.removeprefix(ENDING)))
        elif message.startswith(FAILED):
            member.fault = message.removeprefix(FAILED).decode(errors="replace")
        elif message != ALIVE:
            self._spread(message)
        return True

    def _spread(self, message: bytes) -> None:
        """To all, the one that made the change too: the order is ours."""
        change = Change.decode(message)
        self._changes.pop(change.about, None)
        if not change.method:  # the settings have it
            return
        if len(self._changes) == _MOST_CHANGES:
            del self._changes[next(iter(self._changes))]
        self._changes[change.about] = message
        for member in self._members:
            if member.is_ready:
                self._tell(member, message)

    def _tell(self, member: _Member, *messages: bytes) -> None:
        """As fast as it reads; what one that ends has not read, the next one hears."""
        member.untold.extend(messages)
        if member.channel is None:
            return
        try:
            while member.untold:
                member.channel.send(member.untold[0])
                member.untold.popleft()
        except BlockingIOError:
            pass
        except OSError:  # it is about to end
            member.untold.clear()
        writing = selectors.EVENT_WRITE if member.untold else 0
        self._selector.modify(member.channel, selectors.EVENT_READ | writing, member)

    def _welcome(self, member: _Member) -> None:
        self._tell(member, *self._changes.values())
        if not self._has_been_ready and all(one.is_ready for one in self._members):
            self._has_been_ready = True
            _log.info("%d processes serve port %d", len(self._members), self.settings.port)
            self.notices.ready()

    def _reap(self, member: _Member) -> None:
        if not member.pid or not os.waitpid(member.pid, os.WNOHANG)[0]:
            return
        pid, member.pid = member.pid, 0
        while self._hear(member):  # its last words
            pass
        member.is_ready = False
        if member.channel is not None:
            self._selector.unregister(member.channel)
            member.channel.close()
            member.channel = None
        if self._stopped is None:
            why = f"process {pid} ended"
            self._start_later(member, f"{why}: {member.fault}" if member.fault else why)

    def _start_later(self, member: _Member, why: str) -> None:
        """Try again; where they have never served all of them, that would be in vain."""
        if not self._has_been_ready:
            if member.fault:
                self._fault = member.fault
            else:
                _log.error("%s before all of them served: all are stopped", why)
            self._status = 2
            self._stop()
            return
        now = time.monotonic()
        is_steady = now - member.started > _STEADY_S
        member.wait_s = 0.0 if is_steady else min(_MOST_WAIT_S, 2 * member.wait_s + 1)
        member.due = now + member.wait_s
        _log.error("%s; another is started in %.0f s", why, member.wait_s)

    def _look_after(self, now: float) -> None:
        if self._stopped is not None:
            if now >= self._stopped + self._patience_s:
                self._pass_on(signal.SIGKILL, *self._members)
            return
        limit_s = self.notices.watchdog_s
        for member in self._members if limit_s else ():
            if member.pid and member.is_ready and now - member.heard > limit_s:
                _log.error("process %d does not move: it is killed", member.pid)
                os.kill(member.pid, signal.SIGKILL)
                member.is_ready = False
        self.notices.alive()

    def _stop(self) -> None:
        if self._stopped is None:
            self.notices.stopping()
            self._stopped = time.monotonic()
        self._pass_on(signal.SIGTERM, *self._members)

    def _allow(self, patience_s: float) -> None:
        """The settings may have changed since we read them; a process that hangs has not said so."""
        self._patience_s = max(self._patience_s, patience_s + _GRACE_S)

    def _pass_on(self, number: signal.Signals, *members: _Member) -> None:
        for member in members:
            if member.pid:
                os.kill(member.pid, number)


def _reserve(settings: GatewaySettings) -> socket.socket:
    """The port is ours until the parent ends: bound, and never listened on. Raises ConfigError."""
    host, port = settings.host, settings.port
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Without SO_REUSEPORT, to see whether anybody listens there, another gateway of ours included.
        with socket.socket(family, kind) as trying:
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trying.bind(address)
        reserved = socket.socket(family, kind)
        # Connections of the gateway before, which still linger, are no reason not to start.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError as error:
        raise ConfigError(f"--port: cannot listen on {host}:{port}: {error.strerror}") from None
    return reserved
