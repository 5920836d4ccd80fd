"""Rows of requests from the events of a run: the columns that the VTC artifact logs and its metrics read."""

from collections.abc import Callable
from typing import Any

from fairhit.core.request import ClientId, RequestId
from fairhit_lab.events import Admit, Cancel, Dispatch, Event, Finish, FirstToken, Reject
from fairhit_lab.metrics.vtc_table import Row

US_PER_S = 10**6


class RequestRows:
    """An observer; `rows` holds each request that ended, in the order in which they ended.

    A rejected or cancelled one is `aborted` and has no lengths. 200 bytes a request.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._arrival_us: dict[RequestId, int] = {}
        self._first_us: dict[RequestId, int] = {}
        self._input_len: dict[RequestId, int] = {}
        self._on: dict[type, Callable[[Any], None]] = {
            Dispatch: self._dispatch,
            Admit: self._admit,
            FirstToken: self._first_token,
            Finish: self._finish,
            Cancel: self._abort,
            Reject: self._abort,
        }

    def __call__(self, event: Event, /) -> None:
        if (book := self._on.get(type(event))) is not None:
            book(event)

    def start(
        self, request: RequestId, client: ClientId, t_us: int, program: str | None = None
    ) -> None:
        """Begin the row of a request, before its dispatch (see `Summary.start`). O(1)."""
        self._arrival_us[request] = t_us

    def _dispatch(self, event: Dispatch) -> None:
        self._arrival_us.setdefault(event.request, event.t_us)

    def _admit(self, event: Admit) -> None:
        self._input_len[event.request] = event.input_len

    def _first_token(self, event: FirstToken) -> None:
        self._first_us[event.request] = event.t_us

    def _finish(self, event: Finish) -> None:
        request = event.request
        self.rows.append(
            Row(
                client=event.client,
                arrival_s=self._arrival_us.pop(request) / US_PER_S,
                first_token_s=self._first_us.pop(request) / US_PER_S,
                finish_s=event.t_us / US_PER_S,
                input_len=self._input_len.pop(request),
                output_len=event.output_len,
            )
        )

    def _abort(self, event: Cancel | Reject) -> None:
        arrival_us = self._arrival_us.pop(event.request, event.t_us)
        self._first_us.pop(event.request, None)
        self._input_len.pop(event.request, None)
        at_s, now_s = arrival_us / US_PER_S, event.t_us / US_PER_S
        self.rows.append(Row(event.client, at_s, now_s, now_s, 0, 0, aborted=True))
