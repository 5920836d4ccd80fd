"""The gateway as a process: its signals, its files, its limits."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from functools import partial

import uvloop

from fairlead import built
from fairlead.errors import ConfigError
from fairlead.gateway import descriptors
from fairlead.gateway.crew import FAILED, Crew, Place
from fairlead.gateway.membership import Membership
from fairlead.gateway.notices import Notices, from_environment
from fairlead.gateway.reload import Reloader
from fairlead.gateway.server import Gateway
from fairlead.gateway.settings import GatewaySettings, Sources

_log = logging.getLogger(__name__)

_MOST_FAULT = 10_000  # bytes


async def serve(
    settings: GatewaySettings, sources: Sources | None = None, place: Place | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; on SIGHUP, or when their files change, settings are read again.

    `place`: which of several processes this is; their parent then speaks to the service manager.
    """
    gateway = Gateway(settings, place and place.memory)
    notices = from_environment(os.environ) if place is None else Notices()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await gateway.start()
    if place is None or not place.number:
        _log.info("fairlead is %s", built.description())
        for line in settings.remarks():
            _log.info("settings: %s", line)
        for line in settings.without_effect():
            _log.warning("settings: %s", line)
    scheme = "https" if settings.tls_cert_path is not None else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    _log.info("listening on %s://%s:%d", scheme, host, gateway.port)
    membership = place and Membership(place, gateway.control, stop.set)
    watching = None
    if sources is not None:
        read = sources.read
        reloader = Reloader(
            read=read if place is None else lambda: place.own(read()),
            files=sources.files(),
            more_files=gateway.named_files,
            apply=partial(_apply, gateway, membership),
        )
        loop.add_signal_handler(signal.SIGHUP, _reload, reloader, notices, gateway.reopen)
        watching = loop.create_task(reloader.watch())
        if place is not None and place.is_restarted:  # the parent has the first settings only
            reloader.reload()
    if membership is not None:
        membership.join()
    alive = loop.create_task(notices.watch())
    notices.ready()
    await stop.wait()
    notices.stopping()
    if membership is not None:
        membership.leave(gateway.settings.longest_shutdown_s())
    if watching is not None:
        watching.cancel()
    await gateway.stop()
    alive.cancel()


def _apply(gateway: Gateway, membership: Membership | None, settings: GatewaySettings) -> None:
    old = gateway.settings.engines()
    gateway.apply(settings)
    if membership is not None:
        changed = old.items() ^ gateway.settings.engines().items()
        membership.supersede(sorted({url for url, _ in changed}))


def _reload(reloader: Reloader, notices: Notices, reopen: Callable[[], None]) -> None:
    notices.reloading()
    try:
        reopen()
    except ConfigError as error:
        _log.warning("the access log stays where it is: %s", error)
    reloader.reload()
    notices.ready()


def run(settings: GatewaySettings, sources: Sources | None = None) -> int:
    """`serve` in a process of its own; the exit status."""
    logging.getLogger("fairlead").setLevel(settings.level())
    which = "%(process)d " if settings.processes > 1 else ""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {which}%(levelname)s %(message)s")
    place = None
    if settings.processes > 1:
        outcome = Crew(settings, from_environment(os.environ)).run()
        if isinstance(outcome, int):
            return outcome
        place, settings = outcome, outcome.settings
    # Requests leave no cycles behind: look for garbage rarely, and never among what is loaded.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    files = descriptors.raise_limit()
    try:
        line = descriptors.shortage(settings.max_connections, files)
        if line is not None and (place is None or not place.number):
            _log.warning("%s", line)
        uvloop.run(serve(settings, sources, place))
    except ConfigError as error:
        if place is None:
            raise
        place.channel.send(FAILED + str(error).encode()[:_MOST_FAULT])  # the parent says it, once
        return 2
    return 0
