"""The gateway as a process: signals, reloads, limits of the operating system, notifications to systemd."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from functools import partial

import uvloop

from fairhit import built
from fairhit.errors import ConfigError
from fairhit.gateway.http.accept import descriptors
from fairhit.gateway.process.child import SupervisorLink
from fairhit.gateway.process.reload import Reloader
from fairhit.gateway.process.supervisor import FAILED, ChildContext, Supervisor
from fairhit.gateway.process.systemd import SystemdNotifier, from_environment
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings, Sources

_log = logging.getLogger(__name__)

_MAX_FAULT = 10_000  # bytes


async def serve(
    settings: GatewaySettings, sources: Sources | None = None, child: ChildContext | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; reload the settings on SIGHUP and when their files change.

    `child` is given in each of several processes; the supervisor then notifies systemd.
    """
    gateway = Gateway(settings, child and child.memory)
    notifier = from_environment(os.environ) if child is None else SystemdNotifier()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await gateway.start()
    _log_start(gateway, is_first=child is None or not child.number)
    link = child and SupervisorLink(child, gateway.control, stop.set)
    watching = None
    if sources is not None:
        read = sources.read
        reloader = Reloader(
            read=read if child is None else lambda: child.own(read()),
            files=sources.files(),
            more_files=lambda: gateway.settings.named_files(),  # noqa: PLW0108 - replaced by a reload
            apply=partial(_apply, gateway, link),
        )
        loop.add_signal_handler(signal.SIGHUP, _reload, reloader, notifier, gateway.reopen)
        watching = loop.create_task(reloader.watch())
        if child is not None and child.is_replacement:  # the supervisor has the first settings only
            reloader.reload()
    if link is not None:
        link.join()
    alive = loop.create_task(notifier.watch())
    notifier.ready()
    await stop.wait()
    notifier.stopping()
    if link is not None:
        link.announce_end(gateway.settings.longest_shutdown_s())
    if watching is not None:
        watching.cancel()
    await gateway.stop()
    alive.cancel()


def _log_start(gateway: Gateway, *, is_first: bool) -> None:
    settings = gateway.settings
    if is_first:
        _log.info("fairhit is %s", built.description())
        for line in settings.remarks():
            _log.info("settings: %s", line)
        for line in settings.without_effect():
            _log.warning("settings: %s", line)
        if settings.queue == "engine":
            _log.info("requests wait in the engines, not here: their plug-ins' policy orders them")
        else:
            _log.info("requests that wait here: %s", gateway.dispatcher.queue.rules.described())
    scheme = "https" if settings.tls_cert_path is not None else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    _log.info("listening on %s://%s:%d", scheme, host, gateway.port)


def _apply(gateway: Gateway, link: SupervisorLink | None, settings: GatewaySettings) -> None:
    old = gateway.settings.engines()
    gateway.apply(settings)
    if link is not None:
        changed = old.items() ^ gateway.settings.engines().items()
        link.supersede(sorted({url for url, _ in changed}))


def _reload(reloader: Reloader, notifier: SystemdNotifier, reopen: Callable[[], None]) -> None:
    notifier.reloading()
    try:
        reopen()
    except ConfigError as error:
        _log.warning("the access log is not reopened: %s", error)
    reloader.reload()
    notifier.ready()


def run(settings: GatewaySettings, sources: Sources | None = None) -> int:
    """Run the gateway in this process, or in `settings.processes` children; returns the exit status."""
    logging.getLogger("fairhit").setLevel(settings.level())
    pid = "%(process)d " if settings.processes > 1 else ""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {pid}%(levelname)s %(message)s")
    child = None
    if settings.processes > 1:
        outcome = Supervisor(settings, from_environment(os.environ)).run()
        if isinstance(outcome, int):
            return outcome
        child, settings = outcome, outcome.settings
    # Requests create no reference cycles: collect garbage rarely, and never scan the loaded modules.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    files = descriptors.raise_limit()
    try:
        line = descriptors.shortage(settings.max_connections, files)
        if line is not None and (child is None or not child.number):
            _log.warning("%s", line)
        uvloop.run(serve(settings, sources, child))
    except ConfigError as error:
        if child is None:
            raise
        child.channel.send(
            FAILED + str(error).encode()[:_MAX_FAULT]
        )  # the supervisor reports it once
        return 2
    return 0
